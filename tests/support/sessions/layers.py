"""A layer on its own, called with bytes as a connection calls it."""

from typing import Generic, TypeVar

from relay_core.layers.layer import Layer
from relay_core.layers.stack import LayerStack

L = TypeVar("L", bound=Layer)


class Alone(LayerStack, Generic[L]):
    """The stack of one layer."""

    def __init__(self, layer: L) -> None:
        super().__init__([layer])
        self.layer = layer

    @property
    def is_finished(self) -> bool:
        """True if the layer was removed."""
        return not len(self)
