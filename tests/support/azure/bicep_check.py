"""What can be checked in Bicep files without the Bicep compiler: syntax, names, properties, and this project's rules.

`check(path)` returns one sentence per problem, `file:line: ...`. It knows the syntax (tree-sitter-bicep), the declared
names, the properties of the resource types in bicep_types.json, the parameters of modules and the fields of
user-defined types. It is weaker than `bicep build`: it checks the values of properties only where they are literals,
and knows no types of expressions.

Rules of this project: everything has a description; a value from `listKeys()` or from a secure parameter goes only into
a secure parameter of a module or into the value of a Key Vault secret, never into an output; rules of a namespace are
written one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tree_sitter
import tree_sitter_bicep

__all__ = ["check", "check_parameters", "parameters_of"]

RESOURCE_TYPES: dict[str, Any] = json.loads((Path(__file__).parent / "bicep_types.json").read_text())
PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bicep.language()))
FUNCTIONS = {
    *("concat", "contains", "empty", "flatten", "format", "guid", "join", "json", "length", "map", "range", "replace"),
    *("resourceGroup", "resourceId", "string", "subscription", "subscriptionResourceId", "tenant", "toLower"),
    *("uniqueString", "union"),
}
LIMITS = {"maxLength", "maxValue", "minLength", "minValue"}
DECORATORS = {"allowed", "batchSize", "description", "export", "secure", *LIMITS}
ANY_RESOURCE = {"name!", "parent", "scope", "dependsOn"}

Node = tree_sitter.Node


@dataclass
class Declaration:
    """One top-level statement with a name."""

    kind: str
    """param, var, resource, module, output, type or import."""
    name: str
    node: Node
    decorators: dict[str, str]
    """Decorator name to the text of its arguments."""

    @property
    def secure(self) -> bool:
        return "secure" in self.decorators


@dataclass
class File:
    """A parsed file and what was found wrong with it."""

    path: Path
    root: Node
    declarations: list[Declaration] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def problem(self, node: Node, text: str) -> None:
        self.problems.append(f"{self.path.name}:{node.start_point.row + 1}: {text}")

    def named(self, *kinds: str) -> dict[str, Declaration]:
        return {found.name: found for found in self.declarations if found.kind in kinds}


def check(path: Path) -> list[str]:
    """Return the problems of one Bicep file; files that it uses are read, but not checked themselves."""
    file = load(path)
    if not file.problems:  # the tree of a file with syntax errors shows little
        check_declarations(file)
        check_names(file)
        check_members(file)
        check_resources(file)
        check_modules(file)
        check_secrets(file)
        check_order(file)
    return file.problems


def check_parameters(path: Path) -> list[str]:
    """Return the problems of a .bicepparam file: its parameters against those of the template it uses."""
    # The grammar knows templates only, where `param name = value` is not a statement and `var name = value` is one.
    file = parse(path, re.sub(r"(?m)^param (?=\w+ =)", "var   ", path.read_text()))
    used = next((text(child)[1:-1] for child in walk(file.root) if child.type == "string"), "")
    if file.problems:
        return file.problems
    if not (path.parent / used).is_file():
        return [f"{path.name}:1: template not found: {used!r}"]
    given = file.named("var")
    compare(file, file.root, set(given), parameters_of(path.parent / used), used)
    return file.problems


def parameters_of(path: Path) -> dict[str, bool]:
    """Return the parameters of a template, and whether each must be given."""
    return {name: is_required(found.node) for name, found in load(path).named("param").items()}


# --- reading ---------------------------------------------------------------------------------------------------------


def load(path: Path) -> File:
    return parse(path, path.read_text())


def parse(path: Path, source: str) -> File:
    file = File(path, PARSER.parse(source.encode()).root_node)
    for node in walk(file.root):
        if node.type == "ERROR" or node.is_missing:
            file.problem(node, f"syntax error at {text(node)[:40]!r}")
    pending: dict[str, str] = {}
    for node in file.root.named_children:
        if node.type == "decorators":
            pending = decorators_of(node)
        elif node.type == "import_functionality":
            file.declarations += [Declaration("import", text(name), node, {}) for name in identifiers(node)]
        elif node.type.endswith("_declaration"):
            kind = {"parameter": "param", "variable": "var"}.get(node.type.split("_")[0], node.type.split("_")[0])
            file.declarations.append(Declaration(kind, text(node.named_children[0]), node, pending))
            pending = {}
    return file


def decorators_of(node: Node) -> dict[str, str]:
    calls = [decorator.named_children[0] for decorator in node.named_children]
    return {text(call.named_children[0]): text(call.named_children[1]) for call in calls}


def walk(node: Node) -> Iterator[Node]:
    yield node
    for child in node.children:
        yield from walk(child)


def identifiers(node: Node) -> list[Node]:
    return [child for child in walk(node) if child.type == "identifier"]


def text(node: Node) -> str:
    return (node.text or b"").decode()


def is_required(param: Node) -> bool:
    shape = param.named_children[1]
    has_default = len(param.named_children) > 2
    return not has_default and not any(child.type == "nullable_type" for child in walk(shape))


def body_of(node: Node) -> Node | None:
    """Return the object of a resource or module, through its loop and condition."""
    for child in node.named_children:
        if child.type == "object":
            return child
        if child.type in {"for_statement", "if_statement"}:
            return body_of(child)
    return None


def properties_of(node: Node) -> dict[str, Node]:
    """Return the properties of an object and their values."""
    found = [child.named_children for child in node.named_children if child.type == "object_property"]
    return {text(children[0]).strip("'"): children[-1] for children in found}


def property_of(node: Node, *path: str) -> Node | None:
    """Return the value of a property of a resource or module, by its path."""
    found = body_of(node)
    for name in path:
        found = properties_of(found).get(name) if found and found.type == "object" else None
    return found


# --- names -----------------------------------------------------------------------------------------------------------


def check_declarations(file: File) -> None:
    seen: set[str] = set()
    for found in file.declarations:
        if found.kind != "output" and found.name in seen:
            file.problem(found.node, f"{found.name!r} is declared twice")
        seen.add(found.name)
        if found.kind in {"param", "output", "type"} and "description" not in found.decorators:
            file.problem(found.node, f"{found.kind} {found.name!r} has no @description")
        for name in found.decorators.keys() - DECORATORS:
            file.problem(found.node, f"unknown decorator @{name}")
        if found.kind == "import":
            check_import(file, found)


def check_import(file: File, found: Declaration) -> None:
    source = source_of(file, found)
    exported = load(source).declarations if source.is_file() else []
    if not any(other.name == found.name and "export" in other.decorators for other in exported):
        file.problem(found.node, f"{source.name} exports no {found.name!r}")


def source_of(file: File, found: Declaration) -> Path:
    """Return the file that an import, or a module, names."""
    return file.path.parent / text(next(child for child in walk(found.node) if child.type == "string"))[1:-1]


def check_names(file: File) -> None:
    declared = file.named("param", "var", "resource", "module", "type", "import")
    used: set[str] = set()
    for node in identifiers(file.root):
        name = text(node)
        if is_use(node):
            used.add(name)
            if name not in declared and name not in FUNCTIONS and name not in local_names(node):
                file.problem(node, f"{name!r} is not declared")
    for name, found in declared.items():
        if found.kind in {"param", "var", "import"} and name not in used:
            file.problem(found.node, f"{found.kind} {name!r} is not used")


def is_use(node: Node) -> bool:
    """Whether an identifier stands for a value or type, and is neither a declaration nor a property's name."""
    parent = node.parent
    if parent is None or (parent.type.endswith("_declaration") and node == parent.named_children[0]):
        return False
    if parent.type == "object_property" and node == parent.named_children[0]:
        return False
    if parent.type in {"loop_variable", "loop_enumerator", "import_functionality"}:
        return False
    if parent.type == "for_statement" and node == parent.named_children[0]:
        return False
    in_decorator = parent.type == "call_expression" and parent.parent is not None and parent.parent.type == "decorator"
    return not in_decorator and not any(part.type == "import_functionality" for part in ancestors(node))


def ancestors(node: Node) -> Iterator[Node]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def local_names(node: Node) -> set[str]:
    """Names of the loops around a node."""
    loops = [part for part in ancestors(node) if part.type == "for_statement"]
    return {text(name) for loop in loops for name in identifiers(loop.named_children[0])}


def check_members(file: File) -> None:
    """Check `x.field` where x is a parameter, or a loop over parameters, of a user-defined type."""
    types = {name: found.node for name, found in file.named("type").items()}
    for found in file.named("import").values():
        source = source_of(file, found)
        types.update({name: other.node for name, other in load(source).named("type").items()})
    fields = {
        name: {field_name: text(shape) for field_name, shape in properties_of(node.named_children[-1]).items()}
        for name, node in types.items()
    }
    for node in walk(file.root):
        if node.type == "member_expression":
            owner = type_of(file, node.named_children[0], fields)
            member = text(node.named_children[-1])
            if owner in fields and member not in fields[owner]:
                file.problem(node, f"type {owner!r} has no field {member!r}")


def type_of(file: File, node: Node, fields: dict[str, dict[str, str]]) -> str:
    """Return the declared type of an expression, or an empty text where that takes a compiler."""
    if node.type == "member_expression":
        owner = type_of(file, node.named_children[0], fields)
        return fields.get(owner, {}).get(text(node.named_children[-1]), "").rstrip("?")
    if node.type == "binary_expression":  # `a ?? []`
        return type_of(file, node.named_children[0], fields)
    if node.type != "identifier":
        return ""
    for loop in (part for part in ancestors(node) if part.type == "for_statement"):
        variable, over = loop.named_children[0], loop.named_children[1]
        if text(identifiers(variable)[0]) == text(node):
            return type_of(file, over, fields).removesuffix("[]")
    param = file.named("param").get(text(node))
    return text(param.node.named_children[1]) if param else ""


# --- resources and modules -------------------------------------------------------------------------------------------


def check_resources(file: File) -> None:
    for found in file.named("resource").values():
        name = text(found.node.named_children[1])[1:-1]
        shape, body = RESOURCE_TYPES.get(name), body_of(found.node)
        if not isinstance(shape, dict) or body is None:
            file.problem(found.node, f"unknown resource type {name!r}")
            continue
        existing = " existing " in text(found.node).split("{")[0]
        wanted = {key: value for key, value in shape.items() if not existing}
        check_object(file, body, {**dict.fromkeys(ANY_RESOURCE, "any"), **wanted}, name)


def check_object(file: File, node: Node, shape: Any, owner: str) -> None:
    """Compare an object, or each object of an array, with the shape of bicep_types.json."""
    if isinstance(shape, list):
        check_literal(file, node, shape, owner)
    elif node.type == "array" and isinstance(shape, dict):
        for item in node.named_children:
            check_object(file, item, shape, owner)
    elif node.type == "object" and isinstance(shape, dict):
        known = {key.rstrip("!"): value for key, value in shape.items()}
        given = properties_of(node)
        for name, value in given.items():
            if name not in known:
                file.problem(value, f"{owner} has no property {name!r}")
            else:
                check_object(file, value, known[name], f"{owner} {name}")
        for name in (key[:-1] for key in shape if key.endswith("!") and key[:-1] not in given):
            file.problem(node, f"{owner} needs the property {name!r}")


def check_literal(file: File, node: Node, allowed: list[str], owner: str) -> None:
    for item in node.named_children if node.type == "array" else [node]:
        if item.type == "string" and text(item)[1:-1] not in allowed:
            file.problem(item, f"{owner} is one of {', '.join(allowed)}, not {text(item)}")


def check_modules(file: File) -> None:
    for found in file.named("module").values():
        path, params = source_of(file, found), property_of(found.node, "params")
        if not path.is_file():
            file.problem(found.node, f"module not found: {path.name!r}")
        else:
            given = set(properties_of(params)) if params else set()
            compare(file, found.node, given, parameters_of(path), path.name)


def compare(file: File, node: Node, given: set[str], declared: dict[str, bool], owner: str) -> None:
    for name in sorted(given - declared.keys()):
        file.problem(node, f"{owner} has no parameter {name!r}")
    for name in sorted(name for name, required in declared.items() if required and name not in given):
        file.problem(node, f"{owner} needs the parameter {name!r}")


# --- rules of this project -------------------------------------------------------------------------------------------


def check_secrets(file: File) -> None:
    for found in file.named("output").values():
        if is_secret(file, found.node):
            file.problem(found.node, f"output {found.name!r} would put a secret into the deployment history")
    for found in file.named("module").values():
        path, params = source_of(file, found), property_of(found.node, "params")
        declared = load(path).named("param") if path.is_file() else {}
        for name, value in properties_of(params).items() if params else ():
            if name in declared and is_secret(file, value) and not declared[name].secure:
                file.problem(value, f"a secret goes into parameter {name!r} of {path.name}, which is not @secure")
            if name in declared and declared[name].secure and not is_secret(file, value):
                file.problem(value, f"parameter {name!r} of {path.name} is @secure, but what goes into it is not")
    for found in file.named("resource").values():
        stored = property_of(found.node, "properties", "value")
        if "Microsoft.KeyVault/vaults/secrets@" in text(found.node) and stored and is_insecure(file, stored):
            file.problem(stored, "the value of a Key Vault secret comes from a parameter that is not @secure")


def is_secret(file: File, node: Node) -> bool:
    """Whether an expression holds a key: of `listKeys()`, or of a secure parameter."""
    params = file.named("param")
    secure = any(text(name) in params and params[text(name)].secure for name in identifiers(node))
    return secure or "listKeys()" in text(node)


def is_insecure(file: File, node: Node) -> bool:
    """Whether an expression has no parameter, or one that is not secure."""
    return {True} != {found.secure for found in map(file.named("param").get, map(text, identifiers(node))) if found}


def check_order(file: File) -> None:
    """Azure answers 429 (SubCode=40901) to overlapping writes of rules, so each waits for the one before."""
    before: Declaration | None = None
    for found in file.named("resource", "module").values():
        if not writes_rules(file, found):
            continue
        in_loop = any(child.type == "for_statement" for child in found.node.named_children)
        if in_loop and found.decorators.get("batchSize") != "(1)":
            file.problem(found.node, f"the loop {found.name!r} writes rules at the same time: it needs @batchSize(1)")
        depends = property_of(found.node, "dependsOn")
        if before and (depends is None or before.name not in [text(name) for name in identifiers(depends)]):
            file.problem(
                found.node, f"{found.name!r} and {before.name!r} write rules at the same time: it needs dependsOn"
            )
        before = found


def writes_rules(file: File, found: Declaration) -> bool:
    if found.kind == "resource":
        return "/authorizationRules@" in text(found.node.named_children[1])
    path = source_of(file, found)
    if not path.is_file():
        return False
    module = load(path)
    return any(writes_rules(module, other) for other in module.named("resource", "module").values())
