"""A model is a sequence of layers, each with the times and bytes that one microbatch takes in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..base.errors import InputError, check_int
from ..export.model_split import KINDS
from ..settings.expert_parallel import Chain, ExpertLayer

MOST_LAYERS = 500


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, which a partition does not cut.

    Parameters
    ----------
    name
        What the layer is called, e.g. "block". Layers that are equal, name and kind included, are
        interchangeable.
    forward, backward, weight
        Ticks of the forward pass, of the gradient of the input and of the gradient of the weights, for one
        microbatch; each at least 0. A layer without `weight` is frozen.
    activation
        Bytes that the forward pass of one microbatch leaves in memory.
    weight_activation
        The part of `activation` that the gradient of the weights needs, and frees at its end. The gradient of
        the input frees the rest.
    input
        Bytes that stay in memory in place of `activation` if the layer is recomputed; None if it must not be.
    output
        Bytes that a device sends to the next one if the layer is the last of its stage. Needed only if the
        cluster gives communication as latency and bandwidth.
    parameters
        Number of parameters.
    kind
        What the layer is to a training framework, one of `KINDS`; None if its name says it.
    fused
        Ticks of B and W of one microbatch as one operation, at least 1; None if these are the sum of
        `backward` and `weight`. It counts only if neither of the two is 0.
    experts
        The parts of F, B and W, if some of them are on the network, to the experts of other GPUs: a pair of F
        and BW then takes less time than the two alone. They make up `forward`, `backward` and `weight`. Such
        a layer has no `fused`, and is never recomputed.
    """

    name: str
    forward: int
    backward: int
    weight: int
    activation: int = 0
    weight_activation: int = 0
    input: int | None = None
    output: int | None = None
    parameters: int = 0
    kind: str | None = None
    fused: int | None = None
    experts: ExpertLayer | None = None

    def __post_init__(self) -> None:
        for key in ("forward", "backward", "weight", "activation", "weight_activation", "parameters"):
            check_int(key, getattr(self, key), 0)
        for key in ("input", "output"):
            if getattr(self, key) is not None:
                check_int(key, getattr(self, key), 0)
        if self.kind is not None and self.kind not in list(KINDS):  # an entry of a file may be no text
            raise InputError(f"must be one of {', '.join(KINDS)}", key="kind", value=self.kind)
        if self.fused is not None:
            check_int("fused", self.fused, 1)
        if self.weight_activation > self.activation:
            rule = f"must be at most activation, {self.activation}: it is a part of it"
            raise InputError(rule, key="weight_activation", value=self.weight_activation)
        if self.experts is not None:
            self._check_experts(self.experts)

    def _check_experts(self, experts: ExpertLayer) -> None:
        for key in ("forward", "backward", "weight"):
            ticks = getattr(experts, key).ticks
            if getattr(self, key) != ticks:
                raise InputError(f"must be {ticks}, as experts say", key=key, value=getattr(self, key))
        for key, rule in (("fused", "BW takes their B and W"), ("input", "their F's are not recomputed")):
            if getattr(self, key) is not None:
                raise InputError(f"goes without experts: {rule}", key=key, value=getattr(self, key))

    @property
    def computing(self) -> Layer:
        """The layer without the parts that are on the network.

        Where operations run in pairs, a schedule of layers becomes one of these layers, no longer and with no
        more memory: a pair takes at least the ticks that its F and its BW compute, so the BW and after it the
        F run within its time. So bounds of schedules with these layers and without pairs hold.
        """
        if self.experts is None:
            return self
        forward, backward, weight = (
            getattr(self.experts, key).computing for key in ("forward", "backward", "weight")
        )
        return replace(self, forward=forward, backward=backward, weight=weight, experts=None)

    def chains(self, *, recomputed: bool) -> tuple[Chain, Chain]:
        """Return the parts of F and of BW, on the GPU and on the network."""
        if self.experts is not None:
            return self.experts.chains()
        together = self.together + (self.forward if recomputed else 0)
        forward, backward = ((("gpu", ticks),) if ticks else () for ticks in (self.forward, together))
        return forward, backward

    @property
    def together(self) -> int:
        """Ticks of B and W as one operation; their sum if nothing else is known, or one of them is 0."""
        apart = self.backward + self.weight
        return self.fused if self.fused is not None and self.backward and self.weight else apart

    @property
    def least(self) -> tuple[int, int]:
        """Ticks of B and W, shortened until they take no longer than `together`; B is shortened last.

        A schedule in which B and W are as short as that costs no more, as `solver.bounds.relaxed` proves.
        """
        backward = min(self.backward, self.together)
        return backward, min(self.weight, self.together - backward)

    @property
    def trained(self) -> int:
        """How many parameters have gradients: all, or none if the layer is frozen."""
        return self.parameters if self.weight else 0

    @property
    def needed(self) -> int:
        """Bytes that stay until W has ended: `weight_activation`, or none if there is no W."""
        return self.weight_activation if self.weight else 0

    @property
    def kept(self) -> int:
        """Bytes that stay from F to B if the layer is recomputed.

        The gradient of the weights needs its part of the activation until its own end, and no operation but F
        takes memory in an instance. So F takes this part already, even if the input alone is smaller.
        """
        return min(self.activation, max(self.input or 0, self.needed))

    @property
    def recomputable(self) -> bool:
        """Whether recomputing the layer saves memory."""
        return self.input is not None and self.kept < self.activation


@dataclass(frozen=True, slots=True)
class Model:
    """The layers of a model, the first one first; at least one, at most `MOST_LAYERS`."""

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("must have at least one layer", key="layers", value=[])
        if len(self.layers) > MOST_LAYERS:
            rule = f"must be at most {MOST_LAYERS} layers with all counts"
            raise InputError(rule, key="layers", value=len(self.layers))

    def finest_cuts(self) -> tuple[int, ...]:
        """Return the cuts of the model into as many possible stages as there can be; (0,) if there are none.

        A stage ends with the first layer that makes it possible, and the layers after the last such stage
        belong to it. A stage that begins later is possible only if one that begins earlier and has the same
        last layer is so, too. So no cuts have more stages.
        """
        cuts = [0]
        for end in range(1, len(self.layers) + 1):
            if self.is_possible(cuts[-1], end):
                cuts.append(end)
        return (*cuts[:-1], len(self.layers)) if len(cuts) > 1 else (0,)

    def is_possible(self, first: int, end: int) -> bool:
        """Return whether the layers `first` to `end - 1` can be a stage.

        A stage has an F. It has a B if a layer before it has a B or a W, since the gradient passes through
        the stage. Recomputation makes a B longer, but does not make one where the layers have none.
        """
        stage = self.layers[first:end]
        has_b = any(layer.backward for layer in stage)
        return any(layer.forward for layer in stage) and (has_b or first <= self.frozen)

    @property
    def frozen(self) -> int:
        """How many layers come before the first one with a B or a W."""
        trained = (i for i, layer in enumerate(self.layers) if layer.backward or layer.weight)
        return next(trained, len(self.layers))

    def recomputable(self, first: int, end: int) -> list[int]:
        """Return which of the layers `first` to `end - 1`, as a stage, can be recomputed: in a B, if any."""
        stage = range(first, end)
        if not any(self.layers[i].backward for i in stage):
            return []
        return [i for i in stage if self.layers[i].recomputable]
