"""The tensors of an example by name, and calls of its module with other tensors in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import ModelError
from edgekit.model.adapter import flatten, leaves, parameters_of, rebuilt, signature, unique

if TYPE_CHECKING:
    import torch

Named = dict[str, "torch.Tensor"]
CONSTANTS = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Arguments:
    """The arguments of a module.

    Attributes:
        args: Positional arguments: tensors, or structures of them.
        kwargs: Arguments by name.
        tensors: The tensors of both by name, in order.
        constants: Everything else of both by name, which stays fixed.
        in_order: True if the tensors are the first parameters of `forward`, one each.
    """

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    tensors: Named
    constants: Mapping[str, object]
    in_order: bool

    def run_module(
        self, module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]
    ) -> list[tuple[str, torch.Tensor]]:
        """Run a module with other tensors of the same names and return its output tensors with their names."""
        return list(flatten(self._call(module, iter(tensors.values()))))

    def _call(self, module: Callable[..., Any], tensors: Iterator[torch.Tensor]) -> Any:
        args = [rebuilt(value, tensors) for value in self.args]
        return module(*args, **{name: rebuilt(value, tensors) for name, value in self.kwargs.items()})

    def flat(self, module: torch.nn.Module) -> torch.nn.Module:
        """Return a module that takes the tensors by position and returns the output tensors as a tuple."""
        import torch

        arguments, names = self, tuple(self.tensors)

        class Flat(torch.nn.Module):
            edgekit_adapter = True

            def __init__(self) -> None:
                super().__init__()
                self.inner = module
                self.edgekit_arguments = arguments

            def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
                outputs = dict(zip(names, tensors, strict=True))
                return tuple(tensor for _, tensor in arguments.run_module(self.inner, outputs))

            forward.__signature__ = signature(names)  # type: ignore[attr-defined]  # torch.export takes names from here

        return Flat().eval()


def arguments_of(module: torch.nn.Module, example: Any) -> Arguments:
    """Read an example: a tensor, a sequence in the order of `forward`, values by its names, or (sequence, by name).

    Raises:
        ModelError: If `forward` does not take a name, or the example holds anything but tensors and constants.
    """
    import torch

    parameters = parameters_of(module)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    # With one parameter and **kwargs, a pair (sequence, dictionary) is not two inputs.
    any_name = len(names) < 2 and any(p.kind is p.VAR_KEYWORD for p in parameters)
    args, kwargs = _split(example, None if any_name else {p.name for p in parameters})
    known = parameter_names(module)
    unknown = [name for name in kwargs if name not in known]
    if unknown and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise ModelError(
            f"the example names '{unknown[0]}', which forward() does not take. It takes: {', '.join(known)}. "
            "If one input is a dictionary, write example=({...},)"
        )
    kwargs = {n: kwargs[n] for n in (*known, *unknown) if n in kwargs}
    places = [*names, *(f"input_{number}" for number in range(len(names), len(args)))][: len(args)]
    by_name = _tensors_of({**dict(zip(places, args, strict=True)), **kwargs})
    tensors = {name: value for name, value in by_name.items() if isinstance(value, torch.Tensor)}
    constants = {name: value for name, value in by_name.items() if name not in tensors}
    _check(tensors, constants)
    single = all(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values()))
    in_order = single and [*places, *kwargs] == [*known, *places][: len(tensors)]
    return Arguments(args, kwargs, tensors, constants, in_order)


def parameter_names(module: torch.nn.Module) -> tuple[str, ...]:
    """Return the names of a forward's parameters, except `*args` and `**kwargs`."""
    return tuple(p.name for p in parameters_of(module) if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD))


def tensors_of(module: torch.nn.Module, example: Any) -> Named:
    """Return an example's tensors by name, also for a module made from it (`Arguments.flat`).

    Raises:
        ModelError: As for `arguments_of`.
    """
    own = (part.edgekit_arguments for part in module.modules() if hasattr(part, "edgekit_arguments"))
    arguments = next(own, None)
    return arguments.tensors if isinstance(arguments, Arguments) else arguments_of(module, example).tensors


def _split(example: Any, parameters: set[str] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), {str(name): value for name, value in example.items()}
    if not isinstance(example, Sequence) or isinstance(example, str) or hasattr(example, "_fields"):
        return (example,), {}
    both = len(example) == 2 and isinstance(example[0], tuple) and isinstance(example[1], Mapping)
    if both and (parameters is None or set(example[1]) <= parameters):
        return example[0], dict(example[1])
    return tuple(example), {}


def _tensors_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of the arguments by name; a single structure with tensors needs no prefix."""
    import torch

    parts = {name: list(leaves(value, plain=name)) for name, value in values.items()}
    holding = [name for name, pairs in parts.items() if any(isinstance(leaf, torch.Tensor) for _, leaf in pairs)]
    tensors = [
        pair for name, value in values.items() for pair in (parts[name] if holding == [name] else leaves(value, name))
    ]
    return dict(zip(unique([name for name, _ in tensors]), (leaf for _, leaf in tensors), strict=True))


def _check(tensors: Named, constants: Mapping[str, object]) -> None:
    import torch

    wrong = [name for name, value in constants.items() if not tensors or not isinstance(value, CONSTANTS)]
    if wrong or not tensors:
        what = f"'{wrong[0]}' is {type(constants[wrong[0]]).__name__}" if wrong else "it is empty"
        raise ModelError(f"the example must hold tensors, but {what}")
    for name, tensor in tensors.items():
        if tensor.is_complex() or tensor.layout is not torch.strided or tensor.is_quantized:
            kind = tensor.dtype if tensor.layout is torch.strided else tensor.layout
            raise ModelError(
                f"the example's '{name}' is {kind}, which no edge runtime takes. Let forward() take dense tensors of "
                "numbers and convert them there (torch.view_as_complex of real and imaginary parts)"
            )
        if not tensor.numel() or bool(torch.isnan(tensor).any()):
            what = "holds no value" if not tensor.numel() else "has a NaN"
            raise ModelError(
                f"the example's '{name}' {what}. Give a real input, since its values bound the test inputs"
            )
