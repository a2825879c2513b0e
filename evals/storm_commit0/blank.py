"""Makes an exercise of a library: its source without the bodies of its functions, and a list of those bodies.

    python3 blank.py SPEC.json NAME SDIST.tar.gz DIRECTORY

writes DIRECTORY/reference (the package and its tests as they came), DIRECTORY/blank (the same with the bodies blanked) and
DIRECTORY/exercise.json: for every body its place, the imports and helpers that it needs, and the names that it refers to.
Equal sources give equal exercises.
"""

import ast
import json
import pathlib
import re
import shutil
import sys
import tarfile

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
IMPORTS = (ast.Import, ast.ImportFrom)


def unpack(sdist, package, directory):
    """Unpacks the package and its tests."""
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            inside = member.name.partition("/")[2]
            if member.isfile() and inside.startswith((package + "/", "tests/")):
                member.name = inside
                archive.extract(member, directory, filter="data")


def functions(tree):
    """Yields all functions and methods with their qualified names, except those within functions."""

    def below(node, prefix):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from below(child, prefix + child.name + ".")
            elif isinstance(child, FUNCTIONS):
                yield prefix + child.name, child
            elif isinstance(child, (ast.If, ast.Try)):
                yield from below(child, prefix)

    yield from below(tree, "")


def has_docstring(node):
    return ast.get_docstring(node, clean=False) is not None


def is_trivial(node):
    """Returns true if there is no body to restore."""

    def says_nothing(statement):
        if isinstance(statement, ast.Raise):
            raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
            return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
        is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        return isinstance(statement, ast.Pass) or is_constant

    return all(says_nothing(statement) for statement in node.body)


def called_on_import(tree):
    """Returns names of functions that run while the module is imported: without them the import would fail."""
    names = set()

    def visit(node):
        if isinstance(node, FUNCTIONS):
            outside = node.decorator_list + node.args.defaults + [d for d in node.args.kw_defaults if d]
            for part in outside:
                visit(part)
            names.update(name(decorator) for decorator in node.decorator_list)
            return
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, ast.Call):
            names.add(name(node.func))
        for child in ast.iter_child_nodes(node):
            visit(child)

    def name(node):
        if isinstance(node, ast.Call):
            return name(node.func)
        return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)

    visit(tree)
    return names


def names_in(nodes):
    """Returns used names, including those in short strings (annotations, exports)."""
    used = set()
    for root in nodes:
        for node in ast.walk(root):
            if isinstance(node, ast.Name):
                used.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if re.fullmatch(r"[\w\[\], .'\"|]+", node.value):
                    used.update(re.findall(r"\w+", node.value))
    return used


def body_span(node, lines):
    """Returns the first and last line of the body; comments right above it belong to it."""
    first = node.body[1 if has_docstring(node) else 0]
    start = min([first.lineno] + [decorator.lineno for decorator in getattr(first, "decorator_list", [])])
    while re.match(r"\s*(#|$)", lines[start - 2]) and start > first_free(node):
        start -= 1
    return start, node.end_lineno


def first_free(node):
    if has_docstring(node):
        return node.body[0].end_lineno + 1
    parts = [node.lineno] + [arg.end_lineno for arg in ast.walk(node.args) if hasattr(arg, "end_lineno")]
    if node.returns:
        parts.append(node.returns.end_lineno)
    return max(parts) + 1


class Module:
    """A file of the package, made into an exercise."""

    def __init__(self, path, text, stays, helpers):
        self.path, self.lines, self.tree = path, text.splitlines(keepends=True), ast.parse(text)
        self.pieces, self.imports = [], []
        seen = {}
        for qualname, node in functions(self.tree):
            first = node.body[1 if has_docstring(node) and len(node.body) > 1 else 0]
            runs = node.name in stays or (node.name == "__init__" and qualname.split(".")[-2:-1] and
                                          qualname.split(".")[-2] in stays)
            if runs or is_trivial(node) or first.lineno <= node.lineno:
                continue
            seen[qualname] = seen.get(qualname, 0) + 1
            name = qualname if seen[qualname] == 1 else f"{qualname} ({seen[qualname]})"
            self.pieces.append(self.piece(name, node, helpers))

    def piece(self, name, node, helpers):
        start, end = body_span(node, self.lines)
        indent = re.match(r"\s*", self.lines[node.body[-1].lineno - 1]).group()
        is_generator = any(isinstance(part, (ast.Yield, ast.YieldFrom)) for part in ast.walk(node))
        # Without a `yield` it is no generator; its callers would silently receive nothing.
        word = "raise NotImplementedError" if is_generator else "pass"
        body = "".join(self.lines[start - 1 : end])
        bodies, helper = [body], None
        for number, each in enumerate(helpers):
            if re.search(each["pattern"], body):
                assert helper is None, f"{name} needs two helpers"
                helper = number
                bodies = [re.sub(each["pattern"], variant["call"], body) for variant in each["variants"]]
        inside = node.body[1:] if has_docstring(node) else node.body
        return {
            "name": name, "path": self.path, "stub": f"{indent}{word}  # to restore: {name}\n", "bodies": bodies,
            "helper": helper, "start": start, "end": end, "uses": sorted(names_in(inside)),
        }

    def blank(self):
        """Returns the text without bodies, and without imports used only by bodies."""
        lines = list(self.lines)
        for piece in sorted(self.pieces, key=lambda piece: -piece["start"]):
            lines[piece["start"] - 1 : piece["end"]] = [piece["stub"]]
        tree = ast.parse("".join(lines))
        outside = names_in(node for node in tree.body if not isinstance(node, IMPORTS))
        is_public = self.path.endswith("__init__.py")
        for node in sorted(tree.body, key=lambda node: -node.lineno):
            if not isinstance(node, IMPORTS) or getattr(node, "module", None) == "__future__":
                continue
            if is_public and getattr(node, "level", 0) > 0:
                continue
            kept = []
            for alias in node.names:
                bound = alias.asname or alias.name.partition(".")[0]
                needed = [piece["name"] for piece in self.pieces if bound in piece["uses"]]
                if alias.name == "*" or bound in outside or not needed:
                    kept.append(alias)
                else:
                    self.imports.append({"path": self.path, "statement": written(node, [alias]), "bound": bound})
            if len(kept) < len(node.names):
                lines[node.lineno - 1 : node.end_lineno] = [written(node, kept)] if kept else []
        return "".join(lines)


def written(node, names):
    listed = ", ".join(alias.name + (f" as {alias.asname}" if alias.asname else "") for alias in names)
    if isinstance(node, ast.Import):
        return f"import {listed}\n"
    return f"from {'.' * node.level}{node.module or ''} import {listed}\n"


def anchor(text):
    """Returns the line after (or before) which imports and helpers go: the last unique line of the head."""
    lines = text.splitlines(keepends=True)
    ends = []
    for node in ast.parse(text).body:
        if isinstance(node, FUNCTIONS + (ast.ClassDef,)):
            break
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, IMPORTS) or not ends or is_text:
            ends.append(node.end_lineno)
    candidates = [end for end in ends if lines.count(lines[end - 1]) == 1]
    # If no line of the head is unique, the next unique line after it marks the place.
    behind = (at for at in range(ends[-1] + 1, len(lines) + 1)
              if lines[at - 1].strip() and lines.count(lines[at - 1]) == 1)
    at = candidates[-1] if candidates else next(behind)
    return {"at": at, "text": lines[at - 1], "before": not candidates}


def definitions(path, text):
    """Yields definitions that other modules may refer to: names, and the lines of their heads."""
    for node in ast.parse(text).body:
        if isinstance(node, FUNCTIONS + (ast.ClassDef,)):
            is_function = isinstance(node, FUNCTIONS)
            last = max(node.body[0].lineno - 1, node.lineno) if is_function else node.lineno
            head = f"def {node.name}(" if is_function else f"class {node.name}"
            yield {"name": node.name, "path": path, "head": head, "first": node.lineno, "last": last}


def exercise(name, spec, reference, blank):
    package = reference / spec["package"]
    paths = sorted(path.relative_to(reference).as_posix() for path in package.rglob("*.py"))
    texts = {path: (reference / path).read_text(encoding="utf-8") for path in paths}
    stays = set().union(*(called_on_import(ast.parse(text)) for text in texts.values()))
    modules = [Module(path, text, stays, spec["helpers"]) for path, text in texts.items()]
    blanked = {module.path: module.blank() for module in modules}
    for path, text in blanked.items():
        (blank / path).write_text(text, encoding="utf-8")
    imports = [each for module in modules for each in module.imports]
    for helper in spec["helpers"]:
        module = helper["module"].removesuffix(".py").rpartition("/")[2]
        users = {piece["path"] for each in modules for piece in each.pieces if piece["helper"] is not None
                 and spec["helpers"][piece["helper"]]["name"] == helper["name"]} - {helper["module"]}
        imports += [{"path": path, "statement": f"from .{module} import {helper['name']}\n", "bound": helper["name"]}
                    for path in sorted(users)]
    known = [each for path, text in blanked.items() for each in definitions(path, text)]
    pieces = []
    for module in modules:
        text = blanked[module.path].splitlines(keepends=True)
        heads = [(node.lineno, node.end_lineno) for _, node in functions(ast.parse("".join(text)))]
        for piece in module.pieces:
            at = text.index(piece["stub"]) + 1
            assert text.count(piece["stub"]) == 1, piece["name"]
            uses = set(piece["uses"])
            if piece["helper"] is not None:
                uses.add(spec["helpers"][piece["helper"]]["name"])
            pieces.append({
                "name": piece["name"], "path": module.path, "stub": piece["stub"], "bodies": piece["bodies"], "at": at,
                "from": max(first for first, last in heads if first <= at <= last),
                "helper": piece["helper"], "lines": piece["end"] - piece["start"] + 1,
                "imports": [number for number, each in enumerate(imports)
                            if each["path"] == module.path and each["bound"] in uses],
                "needs": [number for number, each in enumerate(known)
                          if each["name"] in uses or re.search(rf"\b{re.escape(each['name'])}\b", piece["bodies"][0])],
            })
    return {
        "library": name, "path": spec["path"], "pieces": pieces, "definitions": known,
        "imports": [{"statement": each["statement"]} for each in imports],
        "helpers": [{"name": each["name"], "path": each["module"], "definitions": [
            variant["definition"] for variant in each["variants"]]} for each in spec["helpers"]],
        "anchors": {path: anchor(text) for path, text in blanked.items() if text.strip()},
        "sizes": {path: len(text.splitlines()) for path, text in blanked.items()},
        "renames": spec["renames"],
    }


def main(spec, name, sdist, directory):
    spec = json.loads(pathlib.Path(spec).read_text(encoding="utf-8"))[name]
    directory = pathlib.Path(directory)
    reference, blank = directory / "reference", directory / "blank"
    shutil.rmtree(directory, ignore_errors=True)
    unpack(sdist, spec["package"], reference)
    shutil.copytree(reference, blank)
    made = exercise(name, spec, reference, blank)
    (directory / "exercise.json").write_text(json.dumps(made, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
