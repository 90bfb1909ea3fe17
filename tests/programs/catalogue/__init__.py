"""All odd programs, by the kind of what is odd."""

from tests.programs.catalogue.descriptors import DESCRIPTORS
from tests.programs.catalogue.hooks import HOOKS
from tests.programs.catalogue.interpreter import INTERPRETER
from tests.programs.catalogue.processes import PROCESSES

__all__ = ["CATALOGUE"]

CATALOGUE = {
    "files, streams and limits": DESCRIPTORS,
    "hooks and signals": HOOKS,
    "processes and ends": PROCESSES,
    "the interpreter": INTERPRETER,
}
