//! Statements.

use super::super::lex::Token;
use super::{MAX_BRACES, Parsed, Parser, Reported};
use crate::ir::{AtomicOp, BarrierScope, Case, Name, Node};

impl Parser<'_> {
    /// Statements in braces, with names of their own.
    pub(super) fn list(&mut self) -> Parsed<Vec<Node>> {
        self.scope.open();
        let nodes = self.statements();
        self.scope.close();
        nodes
    }

    /// Statements in braces, in the open scope. A broken statement is reported and left out.
    pub(super) fn statements(&mut self) -> Parsed<Vec<Node>> {
        self.mark("{")?;
        let mut nodes = Vec::new();
        while !self.is_mark("}") && *self.peek() != Token::End {
            if self.braces == MAX_BRACES {
                return self.too_deep();
            }
            self.braces += 1;
            let node = self.node();
            self.braces -= 1;
            match node {
                Ok(node) => nodes.push(node),
                Err(Reported) => self.recover(false),
            }
        }
        self.mark("}")?;
        Ok(nodes)
    }

    pub(super) fn node(&mut self) -> Parsed<Node> {
        self.item()?;
        let word = match self.peek() {
            Token::Word(word) => *word,
            Token::Mark("{") => return Ok(Node::Block(self.list()?)),
            _ => return self.assignment(),
        };
        let simple = |this: &mut Self, node: Node| {
            this.next();
            this.mark(";")?;
            Ok(node)
        };
        match word {
            "let" => {
                self.next();
                let name = self.name()?;
                self.mark("=")?;
                let node = match self.peek() {
                    Token::Word("call") => self.call(Some(name.clone()))?,
                    Token::Word("atomic") => self.atomic(Some(name.clone()))?,
                    _ => Node::Let { name: name.clone(), value: self.expr(0)? },
                };
                self.mark(";")?;
                self.scope.declare(&name, None);
                Ok(node)
            }
            "var" => {
                self.next();
                let name = self.name()?;
                self.mark(":")?;
                let ty = self.ty()?;
                let init = if self.eat("=") { Some(self.expr(0)?) } else { None };
                self.mark(";")?;
                self.scope.declare(&name, Some(&ty));
                Ok(Node::Var { name, ty, init })
            }
            "if" => self.conditional(),
            "switch" => self.switch(),
            "for" => {
                self.next();
                let var = self.name()?;
                self.word("in")?;
                let from = self.expr(0)?;
                self.mark("..")?;
                let to = self.expr(0)?;
                let step = if self.eat_word("step") { self.number()? } else { 1 };
                self.scope.open();
                self.scope.declare(&var, None);
                let body = self.list();
                self.scope.close();
                Ok(Node::For { var, from, to, step, body: body? })
            }
            "loop" => {
                self.next();
                self.scope.open();
                let node = self.general_loop();
                self.scope.close();
                node
            }
            "break" => simple(self, Node::Break),
            "continue" => simple(self, Node::Continue),
            "barrier" => simple(self, Node::Barrier(BarrierScope::Workgroup)),
            "storage_barrier" => simple(self, Node::Barrier(BarrierScope::Storage)),
            "return" => {
                self.next();
                let value = if self.is_mark(";") { None } else { Some(self.expr(0)?) };
                self.mark(";")?;
                Ok(Node::Return(value))
            }
            "call" => {
                let node = self.call(None)?;
                self.mark(";")?;
                Ok(node)
            }
            "atomic" => {
                let node = self.atomic(None)?;
                self.mark(";")?;
                Ok(node)
            }
            _ => self.assignment(),
        }
    }

    pub(super) fn conditional(&mut self) -> Parsed<Node> {
        self.word("if")?;
        let cond = self.expr(0)?;
        let then = self.list()?;
        let mut otherwise = Vec::new();
        if self.eat_word("else") {
            if self.is_word("if") {
                self.item()?;
                self.scope.open();
                if self.braces == MAX_BRACES {
                    return self.too_deep();
                }
                self.braces += 1;
                let chained = self.conditional();
                self.braces -= 1;
                self.scope.close();
                otherwise.push(chained?);
            } else {
                otherwise = self.list()?;
            }
        }
        Ok(Node::If { cond, then, otherwise })
    }

    pub(super) fn switch(&mut self) -> Parsed<Node> {
        self.next();
        let selector = self.expr(0)?;
        self.mark("{")?;
        let mut cases = Vec::new();
        while !self.is_mark("}") {
            self.item()?;
            let mut case = Case { values: Vec::new(), default: false, body: Vec::new() };
            if self.eat_word("default") {
                case.default = true;
            } else {
                self.word("case")?;
                while !self.is_mark("{") {
                    if self.eat_word("default") {
                        case.default = true;
                        break;
                    }
                    self.item()?;
                    case.values.push(self.literal()?);
                    if !self.eat(",") {
                        break;
                    }
                }
            }
            case.body = self.list()?;
            cases.push(case);
        }
        self.mark("}")?;
        Ok(Node::Switch { selector, cases })
    }

    pub(super) fn general_loop(&mut self) -> Parsed<Node> {
        let body = self.statements()?;
        let continuing = if self.eat_word("continuing") { self.statements()? } else { Vec::new() };
        let mut break_if = None;
        if self.eat_word("until") {
            break_if = Some(self.expr(0)?);
            self.mark(";")?;
        }
        Ok(Node::Loop { body, continuing, break_if })
    }

    pub(super) fn call(&mut self, result: Option<Name>) -> Parsed<Node> {
        self.word("call")?;
        let function = self.name()?;
        Ok(Node::Call { function, args: self.args()?, result })
    }

    pub(super) fn atomic(&mut self, result: Option<Name>) -> Parsed<Node> {
        self.word("atomic")?;
        self.mark(".")?;
        let op = match self.peek() {
            Token::Word(word) => AtomicOp::named(word),
            _ => None,
        };
        let Some(op) = op else { return self.expected("an atomic operation") };
        self.next();
        self.mark("(")?;
        self.eat("@");
        let buffer = self.name()?;
        let (index, path) = self.element(&buffer)?;
        let (mut value, mut compare) = (None, None);
        while self.eat(",") {
            let labelled = self.is_word("compare") && matches!(self.second(), Token::Mark(":"));
            if labelled && compare.is_none() {
                self.next();
                self.next();
                compare = Some(self.expr(0)?);
            } else if value.is_none() && compare.is_none() {
                value = Some(self.expr(0)?);
            } else {
                return self.expected("`)`");
            }
        }
        self.mark(")")?;
        Ok(Node::Atomic { op, buffer, index, path, value, compare, result })
    }

    pub(super) fn assignment(&mut self) -> Parsed<Node> {
        let variable = self.eat("%");
        let buffer = !variable && self.eat("@");
        if !self.is_name() {
            return self.expected("a statement");
        }
        let name = self.name()?;
        let known = self.scope.get(name.as_str()).map(|ty| ty.cloned());
        if buffer || !variable && known.is_none() && self.is_mark("[") {
            let (index, path) = self.element(&name)?;
            self.mark("=")?;
            let value = self.expr(0)?;
            self.mark(";")?;
            return Ok(Node::Store { buffer: name, index, path, value });
        }
        let path = self.path(&mut known.flatten())?;
        self.mark("=")?;
        let value = self.expr(0)?;
        self.mark(";")?;
        Ok(Node::Assign { name, path, value })
    }
}
