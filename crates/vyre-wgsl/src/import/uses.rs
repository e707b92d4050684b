//! What functions do with pointers and global variables, found before anything is translated.

use std::collections::{BTreeMap, HashSet};

use naga::{
    AtomicFunction, Block, Expression, Function, GatherMode, GlobalVariable, Handle, Module, Statement, SwitchCase,
    Type, TypeInner,
};

/// What one function does, with what it calls.
#[derive(Clone, Debug, Default)]
pub(super) struct FunctionUses {
    /// For each argument: something is stored through it.
    pub(super) written: Vec<bool>,
    /// Private variables, and whether they are stored to.
    pub(super) privates: BTreeMap<Handle<GlobalVariable>, bool>,
    /// Other global variables that appear, and whether they are loaded from, even if nothing is done with the value.
    pub(super) resources: BTreeMap<Handle<GlobalVariable>, bool>,
}

/// What the module's functions do.
#[derive(Debug, Default)]
pub(super) struct ModuleUses {
    functions: Vec<FunctionUses>,
    /// Arrays that are loaded or stored as a whole somewhere, so that they have to stay one value.
    whole: HashSet<Handle<GlobalVariable>>,
    whole_types: HashSet<Handle<Type>>,
}

/// The variable or argument that a pointer points into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    Global(Handle<GlobalVariable>),
    Argument(u32),
    Other,
}

fn root(function: &Function, mut pointer: Handle<Expression>) -> Root {
    loop {
        match function.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => pointer = base,
            Expression::GlobalVariable(global) => return Root::Global(global),
            Expression::FunctionArgument(index) => return Root::Argument(index),
            _ => return Root::Other,
        }
    }
}

impl ModuleUses {
    pub(super) fn new(module: &Module) -> Self {
        let mut uses = ModuleUses::default();
        // naga orders functions so that callees come first.
        for (_, function) in module.functions.iter() {
            let found = uses.scan(module, function);
            uses.functions.push(found);
        }
        for entry in &module.entry_points {
            uses.scan(module, &entry.function);
        }
        uses
    }

    pub(super) fn of(&self, function: Handle<Function>) -> &FunctionUses {
        &self.functions[function.index()]
    }

    pub(super) fn entry(&self, module: &Module, function: &Function) -> FunctionUses {
        let mut scan = Scan { uses: self, module, function, found: FunctionUses::default(), whole: Vec::new() };
        scan.all();
        scan.found
    }

    pub(super) fn is_whole(&self, module: &Module, global: Handle<GlobalVariable>) -> bool {
        self.whole.contains(&global) || self.whole_types.contains(&module.global_variables[global].ty)
    }

    fn scan(&mut self, module: &Module, function: &Function) -> FunctionUses {
        let mut scan = Scan { uses: self, module, function, found: FunctionUses::default(), whole: Vec::new() };
        scan.all();
        let Scan { found, whole, .. } = scan;
        for root in whole {
            match root {
                Root::Global(global) => _ = self.whole.insert(global),
                Root::Argument(index) => {
                    if let TypeInner::Pointer { base, .. } = module.types[function.arguments[index as usize].ty].inner {
                        self.whole_types.insert(base);
                    }
                }
                Root::Other => {}
            }
        }
        found
    }
}

struct Scan<'a> {
    uses: &'a ModuleUses,
    module: &'a Module,
    function: &'a Function,
    found: FunctionUses,
    whole: Vec<Root>,
}

impl Scan<'_> {
    fn all(&mut self) {
        self.found.written = vec![false; self.function.arguments.len()];
        for (_, expression) in self.function.expressions.iter() {
            match *expression {
                Expression::GlobalVariable(global) => self.appears(global, false),
                Expression::Load { pointer } => {
                    self.accessed_whole(pointer);
                    if let Root::Global(global) = root(self.function, pointer) {
                        self.appears(global, true);
                    }
                }
                _ => {}
            }
        }
        self.block(&self.function.body);
    }

    fn appears(&mut self, global: Handle<GlobalVariable>, loaded: bool) {
        if self.module.global_variables[global].space == naga::AddressSpace::Private {
            self.private(global, false);
        } else {
            *self.found.resources.entry(global).or_default() |= loaded;
        }
    }

    fn private(&mut self, global: Handle<GlobalVariable>, written: bool) {
        if self.module.global_variables[global].space == naga::AddressSpace::Private {
            *self.found.privates.entry(global).or_default() |= written;
        }
    }

    fn accessed_whole(&mut self, pointer: Handle<Expression>) {
        match self.function.expressions[pointer] {
            Expression::GlobalVariable(global) => self.whole.push(Root::Global(global)),
            Expression::FunctionArgument(index) => self.whole.push(Root::Argument(index)),
            _ => {}
        }
    }

    fn stored(&mut self, pointer: Handle<Expression>) {
        match root(self.function, pointer) {
            Root::Global(global) => self.private(global, true),
            Root::Argument(index) => self.found.written[index as usize] = true,
            Root::Other => {}
        }
    }

    fn block(&mut self, block: &Block) {
        for statement in block.iter() {
            match statement {
                Statement::Store { pointer, .. } => {
                    self.accessed_whole(*pointer);
                    self.stored(*pointer);
                }
                Statement::Atomic { pointer, .. } => self.stored(*pointer),
                Statement::WorkGroupUniformLoad { pointer, .. } => self.accessed_whole(*pointer),
                Statement::Call { function, arguments, .. } => {
                    let callee = self.uses.of(*function);
                    for (&global, &written) in &callee.privates {
                        *self.found.privates.entry(global).or_default() |= written;
                    }
                    for (&global, &loaded) in &callee.resources {
                        *self.found.resources.entry(global).or_default() |= loaded;
                    }
                    for (argument, written) in arguments.iter().zip(callee.written.clone()) {
                        if written {
                            self.stored(*argument);
                        }
                    }
                }
                Statement::Block(inner) => self.block(inner),
                Statement::If { accept, reject, .. } => {
                    self.block(accept);
                    self.block(reject);
                }
                Statement::Switch { cases, .. } => cases.iter().for_each(|case: &SwitchCase| self.block(&case.body)),
                Statement::Loop { body, continuing, .. } => {
                    self.block(body);
                    self.block(continuing);
                }
                _ => {}
            }
        }
    }
}

/// Calls `visit` for each expression that this one is computed from.
pub(super) fn operands(expression: &Expression, visit: &mut dyn FnMut(Handle<Expression>)) {
    match *expression {
        Expression::Compose { ref components, .. } => components.iter().for_each(|&part| visit(part)),
        Expression::Access { base, index } => {
            visit(base);
            visit(index);
        }
        Expression::AccessIndex { base, .. } => visit(base),
        Expression::Splat { value, .. } => visit(value),
        Expression::Swizzle { vector, .. } => visit(vector),
        Expression::Load { pointer } => visit(pointer),
        Expression::Unary { expr, .. } | Expression::As { expr, .. } | Expression::ArrayLength(expr) => visit(expr),
        Expression::Binary { left, right, .. } => {
            visit(left);
            visit(right);
        }
        Expression::Select { condition, accept, reject } => {
            visit(condition);
            visit(accept);
            visit(reject);
        }
        Expression::Relational { argument, .. } => visit(argument),
        Expression::Math { arg, arg1, arg2, arg3, .. } => {
            visit(arg);
            [arg1, arg2, arg3].into_iter().flatten().for_each(visit);
        }
        _ => {}
    }
}

/// How often each expression is read, counting a pointer's index once for each use of the pointer. Dead ones count nothing.
pub(super) fn count(function: &Function, is_pointer: &dyn Fn(Handle<Expression>) -> bool) -> Vec<u32> {
    let mut counts = vec![0u32; function.expressions.len()];
    count_block(&function.body, &mut counts);
    for (_, local) in function.local_variables.iter() {
        if let Some(init) = local.init {
            counts[init.index()] += 1;
        }
    }
    for (handle, expression) in function.expressions.iter().rev() {
        let own = counts[handle.index()];
        if own > 0 {
            let each = if is_pointer(handle) { own } else { 1 };
            operands(expression, &mut |part| {
                counts[part.index()] = counts[part.index()].saturating_add(each);
            });
        }
    }
    counts
}

fn count_block(block: &Block, counts: &mut [u32]) {
    for statement in block.iter() {
        let mut visit = |handle: Handle<Expression>| counts[handle.index()] += 1;
        match statement {
            Statement::If { condition, .. } => visit(*condition),
            Statement::Switch { selector, .. } => visit(*selector),
            Statement::Loop { break_if, .. } => break_if.iter().for_each(|&cond| visit(cond)),
            Statement::Return { value } => value.iter().for_each(|&value| visit(value)),
            Statement::Store { pointer, value } => {
                visit(*pointer);
                visit(*value);
            }
            Statement::Atomic { pointer, fun, value, .. } => {
                visit(*pointer);
                visit(*value);
                if let AtomicFunction::Exchange { compare: Some(compare) } = fun {
                    visit(*compare);
                }
            }
            Statement::WorkGroupUniformLoad { pointer, .. } => visit(*pointer),
            Statement::Call { arguments, .. } => arguments.iter().for_each(|&argument| visit(argument)),
            Statement::SubgroupBallot { predicate, .. } => predicate.iter().for_each(|&value| visit(value)),
            Statement::SubgroupGather { mode, argument, .. } => {
                visit(*argument);
                match mode {
                    GatherMode::Broadcast(lane)
                    | GatherMode::Shuffle(lane)
                    | GatherMode::ShuffleDown(lane)
                    | GatherMode::ShuffleUp(lane)
                    | GatherMode::ShuffleXor(lane)
                    | GatherMode::QuadBroadcast(lane) => visit(*lane),
                    GatherMode::BroadcastFirst | GatherMode::QuadSwap(_) => {}
                }
            }
            Statement::SubgroupCollectiveOperation { argument, .. } => visit(*argument),
            _ => {}
        }
        match statement {
            Statement::Block(inner) => count_block(inner, counts),
            Statement::If { accept, reject, .. } => {
                count_block(accept, counts);
                count_block(reject, counts);
            }
            Statement::Switch { cases, .. } => cases.iter().for_each(|case| count_block(&case.body, counts)),
            Statement::Loop { body, continuing, .. } => {
                count_block(body, counts);
                count_block(continuing, counts);
            }
            _ => {}
        }
    }
}
