"""A model is a sequence of layers, each with the times and bytes that one microbatch takes in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

from ..base.errors import InputError, check_choice, check_int
from ..export.model_split import KINDS
from ..settings.expert_parallel import Chain, ExpertLayer

MOST_LAYERS = 500

Recomputed = tuple[tuple[int, str], ...]
"""The recomputed layers of a stage: the index of each in the model, ascending, with the kind."""


class Effect(NamedTuple):
    """What recomputation changes in a layer or a stage.

    B is longer by `extra` ticks, and takes `transient` more bytes while it recomputes. F takes `saved` bytes
    less, of which `away` may else leave the device, and W frees `spared` bytes less.
    """

    extra: int = 0
    saved: int = 0
    spared: int = 0
    transient: int = 0
    away: int = 0

    def beside(self, other: Effect) -> Effect:
        """Return the effect of both in one stage, whose B recomputes one layer after another."""
        return Effect(
            self.extra + other.extra,
            self.saved + other.saved,
            self.spared + other.spared,
            max(self.transient, other.transient),
            self.away + other.away,
        )


@dataclass(frozen=True, slots=True)
class Recomputation:
    """One kind of recomputation that a layer allows."""

    name: str  #: the kind, e.g. "full". Layers of a stage that recompute in the same way share the name.
    ticks: int  #: ticks by which B gets longer
    activation: int  #: bytes that stay from F to B, at most the layer's `activation`
    #: bytes that stay from B to the end of W, at most the layer's `weight_activation`; None for these
    weight_activation: int | None = None
    #: bytes that B takes in addition while it recomputes the layer; None for all that F did not keep
    transient: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError("must be a text, the name of the kind", key="name", value=self.name)
        for key in ("ticks", "activation"):
            check_int(key, getattr(self, key), 0)
        for key in ("weight_activation", "transient"):
            if getattr(self, key) is not None:
                check_int(key, getattr(self, key), 0)


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer, which a partition does not cut."""

    #: what the layer is called, e.g. "block". Layers that are equal, name and kind included, are
    #: interchangeable.
    name: str
    #: ticks of the forward pass, of the gradient of the input and of the gradient of the weights, for one
    #: microbatch; each at least 0. A layer without `weight` is frozen.
    forward: int
    backward: int
    weight: int
    activation: int = 0  #: bytes that the forward pass of one microbatch leaves in memory
    #: the part of `activation` that the gradient of the weights needs, and frees at its end. The gradient of
    #: the input frees the rest.
    weight_activation: int = 0
    #: the kinds of recomputation that the layer allows, each with another name
    recompute: tuple[Recomputation, ...] = ()
    #: bytes that a device sends to the next one if the layer is the last of its stage. Needed only if the
    #: cluster gives communication as latency and bandwidth.
    output: int | None = None
    parameters: int = 0  #: number of parameters
    #: what the layer is to a training framework, one of `KINDS`; None if its name says it
    kind: str | None = None
    #: ticks of B and W of one microbatch as one operation, at least 1; None if these are the sum of
    #: `backward` and `weight`. It counts only if neither of the two is 0.
    fused: int | None = None
    #: the parts of F, B and W, if some of them are on the network, to the experts of other GPUs: a pair of F
    #: and BW then takes less time than the two alone. They make up `forward`, `backward` and `weight`. Such a
    #: layer has no `fused`, and is never recomputed.
    experts: ExpertLayer | None = None
    #: the part of `activation` that may leave the device between F and the backward, to its `Host`. What
    #: recomputation does not keep counts as a part of it.
    offload: int = 0

    def __post_init__(self) -> None:
        keys = ("forward", "backward", "weight", "activation", "weight_activation", "parameters", "offload")
        for key in keys:
            check_int(key, getattr(self, key), 0)
        if self.output is not None:
            check_int("output", self.output, 0)
        if self.kind is not None:
            check_choice("kind", self.kind, *KINDS)
        if self.fused is not None:
            check_int("fused", self.fused, 1)
        for key in ("weight_activation", "offload"):
            if getattr(self, key) > self.activation:
                rule = f"must be at most activation, {self.activation}: it is a part of it"
                raise InputError(rule, key=key, value=getattr(self, key))
        if self.experts is not None:
            self._check_experts(self.experts)

        for index, kind in enumerate(self.recompute):
            self._check_kind(f"recompute[{index}]", kind, self.recompute[:index])

    def _check_experts(self, experts: ExpertLayer) -> None:
        for key in ("forward", "backward", "weight"):
            ticks = getattr(experts, key).ticks
            if getattr(self, key) != ticks:
                raise InputError(f"must be {ticks}, as experts say", key=key, value=getattr(self, key))
        if self.fused is not None:
            raise InputError("goes without experts: BW takes their B and W", key="fused", value=self.fused)
        if self.recompute:
            rule = "goes without experts: their F's are not recomputed"
            raise InputError(rule, key="recompute", value=[kind.name for kind in self.recompute])

    def _check_kind(self, where: str, kind: Recomputation, before: Sequence[Recomputation]) -> None:
        if kind.name in [other.name for other in before]:
            raise InputError("is there twice in a layer", key=f"{where}.name", value=kind.name)
        for key in ("activation", "weight_activation"):
            kept, without = getattr(kind, key), getattr(self, key)
            if kept is not None and kept > without:
                rule = f"must be at most the layer's {key}, {without}: recomputation does not keep more"
                raise InputError(rule, key=f"{where}.{key}", value=kept)

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

    def chains(self, recomputed: str | None = None) -> tuple[Chain, Chain]:
        """Return the parts of F and of BW, on the GPU and on the network, given the kind of recomputation."""
        if self.experts is not None:
            return self.experts.chains()
        together = self.together + (self.effect(recomputed).extra if recomputed else 0)
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

    def effect(self, kind: str) -> Effect:
        """Return what changes if the layer is recomputed in one of its kinds.

        The gradient of the weights needs its part of the activation until its own end, and no operation but F
        takes memory in an instance. So F takes this part already, even if less than that stays until B.
        """
        found = next((each for each in self.recompute if each.name == kind), None)
        if found is None:
            raise InputError(f"the layer {self.name} lists no such kind", key="recomputed", value=kind)
        late = self.needed if found.weight_activation is None else min(self.needed, found.weight_activation)
        saved = self.activation - max(found.activation, late)
        transient = saved if found.transient is None else found.transient
        return Effect(found.ticks, saved, self.needed - late, transient, min(saved, self.offload))

    def effects(self, kinds: Iterable[str]) -> dict[str, Effect]:
        """Return those of the kinds in which recomputing the layer saves memory, each with its effect."""
        known = [each.name for each in self.recompute]
        found = {kind: self.effect(kind) for kind in kinds if kind in known}
        return {kind: effect for kind, effect in found.items() if effect.saved or effect.spared}


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
        """Return whether the layers `first` to `end - 1`, at least one, can be a stage.

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

    def recomputable(self, first: int, end: int, kinds: Sequence[str]) -> Recomputed:
        """Return which of the layers `first` to `end - 1`, as a stage, can be recomputed: in a B, if any.

        Each comes with the kind, of those given, in which F takes fewest bytes.
        """
        stage = range(first, end)
        if not any(self.layers[i].backward for i in stage):
            return ()
        able = ((i, self.layers[i].effects(kinds)) for i in stage)
        return tuple((i, max(found, key=lambda kind: found[kind].saved)) for i, found in able if found)

    def effect(self, recomputed: Recomputed) -> Effect:
        """Return what changes in a stage that recomputes these of its layers."""
        return reduce(Effect.beside, (self.layers[i].effect(kind) for i, kind in recomputed), Effect())

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of all kinds of recomputation that layers allow, the first layer's first."""
        return tuple(dict.fromkeys(each.name for layer in self.layers for each in layer.recompute))
