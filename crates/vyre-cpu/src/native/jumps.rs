//! Jumps that go where they have to at once.

use super::asm::Label;
use super::mir::M;

/// How many jumps to jumps are followed.
const FAR: usize = 8;

/// Lets jumps to jumps go where those go, and branches around jumps be branches to where those go. Jumps that nothing comes to any more stay,
/// because the last one to the beginning of a loop is its end.
pub(super) fn straighten(code: &mut Vec<M>, labels: u32) {
    // Where a label leads to, if it stands before a jump.
    let mut leads = vec![None; labels as usize];
    let mut next = None;
    for m in code.iter().rev() {
        match m {
            M::Label(Label(label)) => leads[*label as usize] = next,
            M::Jump(to) => next = Some(*to),
            _ => next = None,
        }
    }
    for m in code.iter_mut() {
        if let M::Jump(to) | M::JumpIf(_, to) = m {
            for _ in 0..FAR {
                let Some(further) = leads[to.0 as usize] else { break };
                *to = further;
            }
        }
    }
    let mut kept = Vec::with_capacity(code.len());
    let mut rest = code.iter().copied().peekable();
    while let Some(m) = rest.next() {
        match (kept.last_mut(), m, rest.peek()) {
            (Some(M::JumpIf(cond, around)), M::Jump(to), Some(M::Label(label))) if around == label => {
                (*cond, *around) = (cond.inverse(), to);
            }
            (_, M::Jump(to), Some(M::Label(label))) if to == *label => {}
            _ => kept.push(m),
        }
    }
    *code = kept;
}
