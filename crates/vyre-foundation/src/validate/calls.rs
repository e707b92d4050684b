//! Checks that calls don't go in circles, and how large the program becomes when they are replaced by bodies.

use vyre_spec::codes;

use super::body::{BodyFacts, Facts};
use super::limits::{MAX_INLINED_DEPTH, MAX_INLINED_STATEMENTS, MAX_PRIVATE_BYTES};
use super::report::{Place, Report};
use crate::ir::Program;

/// What a body becomes with all calls replaced.
#[derive(Clone, Copy, Default)]
struct Inlined {
    statements: u64,
    depth: u32,
    private_bytes: u64,
}

/// Reports recursion and programs that grow too large. True when there is no recursion.
pub(super) fn check(program: &Program, facts: &Facts, report: &mut Report) -> bool {
    let count = program.functions().len();
    // Depth first with a list of its own: 0 not seen, 1 being looked at, 2 done.
    let mut state = vec![0u8; count];
    let mut order = Vec::with_capacity(count);
    let mut recursion = false;
    for root in 0..count {
        if state[root] != 0 {
            continue;
        }
        let mut path = vec![(root, 0)];
        state[root] = 1;
        while let Some((function, next)) = path.last_mut() {
            let function = *function;
            let Some(&(callee, _)) = facts.functions[function].calls.get(*next) else {
                state[function] = 2;
                order.push(function);
                path.pop();
                continue;
            };
            *next += 1;
            match state[callee] {
                0 => {
                    state[callee] = 1;
                    path.push((callee, 0));
                }
                1 => {
                    recursion = true;
                    let start = path.iter().position(|(f, _)| *f == callee).unwrap_or(0);
                    let names: Vec<_> = path[start..]
                        .iter()
                        .map(|(f, _)| *f)
                        .chain([callee])
                        .take(20)
                        .map(|f| format!("`{}`", program.functions()[f].name))
                        .collect();
                    let message = format!("calls go in a circle: {}", names.join(" calls "));
                    report.add(&codes::ir::IR_RECURSION, message, &Place::at("functions", function));
                }
                _ => {}
            }
        }
    }
    if recursion {
        return false;
    }
    let mut sizes = vec![Inlined::default(); count];
    for function in order {
        sizes[function] = inlined(&facts.functions[function], &sizes);
    }
    let whole = inlined(&facts.entry, &sizes);
    let place = Place::of("body");
    let mut fits = true;
    let mut limit = |message: String| {
        report.add(&codes::ir::IR_LIMIT, message, &place);
        fits = false;
    };
    if whole.statements > MAX_INLINED_STATEMENTS {
        limit(format!(
            "with all calls replaced by bodies the program has {} statements, and the limit is {MAX_INLINED_STATEMENTS}",
            whole.statements
        ));
    }
    if whole.depth > MAX_INLINED_DEPTH {
        limit(format!(
            "with all calls replaced by bodies statements nest {} levels deep, and the limit is {MAX_INLINED_DEPTH}",
            whole.depth
        ));
    }
    if whole.private_bytes > MAX_PRIVATE_BYTES {
        limit(format!(
            "struct and array variables take {} bytes of each invocation, and the limit is {MAX_PRIVATE_BYTES}",
            whole.private_bytes
        ));
    }
    fits
}

fn inlined(body: &BodyFacts, sizes: &[Inlined]) -> Inlined {
    let mut total = Inlined { statements: body.statements, depth: body.depth, private_bytes: body.private_bytes };
    for &(callee, depth) in &body.calls {
        let inner = sizes[callee];
        total.statements = total.statements.saturating_add(inner.statements);
        total.depth = total.depth.max(depth.saturating_add(inner.depth));
        total.private_bytes = total.private_bytes.saturating_add(inner.private_bytes);
    }
    total
}
