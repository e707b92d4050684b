"""Which variables of a function are assigned once and used only after that, so that they need no memory."""

from __future__ import annotations

import ast


class Scopes:
    """Where the names of a function are assigned and used."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self.loop_variables: set[str] = set()
        self._stores: dict[str, list[tuple[tuple[int, ...], int, ast.AST]]] = {}
        self._loads: dict[str, list[tuple[tuple[int, ...], int]]] = {}
        self._order = 0
        arguments = tree.args
        self.parameters = {a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]}
        self._block(tree.body, (id(tree.body),))
        self.loop_variables -= set(self._stores)
        self.locals = set(self._stores) | self.loop_variables | self.parameters

    def is_single(self, name: str, target: ast.AST) -> bool:
        """This is the one assignment of the name, and everything that uses it comes later, in the same block or inside it."""
        stores = self._stores.get(name, [])
        if len(stores) != 1 or stores[0][2] is not target or name in self.parameters:
            return False
        path, order, _ = stores[0]
        return all(later > order and where[: len(path)] == path for where, later in self._loads.get(name, []))

    def is_assigned(self, name: str) -> bool:
        return name in self._stores

    def _block(self, statements: list[ast.stmt], path: tuple[int, ...]) -> None:
        for statement in statements:
            self._statement(statement, path)

    def _statement(self, node: ast.stmt, path: tuple[int, ...]) -> None:
        if isinstance(node, ast.For):
            self._names(node.iter, path)
            if isinstance(node.target, ast.Name):
                self.loop_variables.add(node.target.id)
            self._block(node.body, (*path, id(node.body)))
            self._block(node.orelse, (*path, id(node.orelse)))
        elif isinstance(node, (ast.If, ast.While)):
            self._names(node.test, path)
            self._block(node.body, (*path, id(node.body)))
            self._block(node.orelse, (*path, id(node.orelse)))
        elif isinstance(node, ast.AugAssign):
            self._names(node.value, path)
            self._names(node.target, path)
            if isinstance(node.target, ast.Name):
                self._load(node.target.id, path)
                self._store(node.target, path)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            # The value is computed before it is assigned.
            if node.value is not None:
                self._names(node.value, path)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._names(target, path)
        else:
            self._names(node, path)

    def _names(self, tree: ast.AST, path: tuple[int, ...]) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                if isinstance(node.ctx, ast.Load):
                    self._load(node.id, path)
                else:
                    self._store(node, path)

    def _load(self, name: str, path: tuple[int, ...]) -> None:
        self._order += 1
        self._loads.setdefault(name, []).append((path, self._order))

    def _store(self, node: ast.Name, path: tuple[int, ...]) -> None:
        self._order += 1
        self._stores.setdefault(node.id, []).append((path, self._order, node))
