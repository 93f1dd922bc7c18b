"""A model is a sequence of layers, each with the times and bytes that one microbatch takes in it."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.errors import InputError
from ..core.integers import check_int
from ..export.layer_kinds import KINDS

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
        microbatch; each at least 0.
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

    def __post_init__(self) -> None:
        for key in ("forward", "backward", "weight", "activation", "weight_activation", "parameters"):
            check_int(key, getattr(self, key), 0)
        for key in ("input", "output"):
            if getattr(self, key) is not None:
                check_int(key, getattr(self, key), 0)
        if self.kind is not None and self.kind not in list(KINDS):  # an entry of a file may be no text
            raise InputError(f"must be one of {', '.join(KINDS)}", key="kind", value=self.kind)
        if self.weight_activation > self.activation:
            rule = f"must be at most activation, {self.activation}: it is a part of it"
            raise InputError(rule, key="weight_activation", value=self.weight_activation)

    @property
    def kept(self) -> int:
        """Bytes that stay from F to B if the layer is recomputed.

        The gradient of the weights needs its part of the activation until its own end, and no operation but F
        takes memory in an instance. So F takes this part already, even if the input alone is smaller.
        """
        return min(self.activation, max(self.input or 0, self.weight_activation))

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
        """Return the cuts of the model into as many complete stages as possible; (0,) if it has none.

        A stage ends with the first layer that makes it complete, and the layers after the last such stage
        belong to it. As every stage ends as early as it can, no cuts have more complete stages.
        """
        cuts, lacking = [0], {"forward", "backward", "weight"}
        for end, layer in enumerate(self.layers, 1):
            lacking = {key for key in lacking if not getattr(layer, key)}
            if not lacking:
                cuts.append(end)
                lacking = {"forward", "backward", "weight"}
        return (*cuts[:-1], len(self.layers)) if len(cuts) > 1 else (0,)

    def is_complete(self, first: int, end: int) -> bool:
        """Return whether F, B and W of a stage with the layers `first` to `end - 1` all take time.

        Recomputation makes a B longer, but does not make one where the layers have none.
        """
        stage = self.layers[first:end]
        return (
            any(layer.forward for layer in stage)
            and any(layer.backward for layer in stage)
            and any(layer.weight for layer in stage)
        )
