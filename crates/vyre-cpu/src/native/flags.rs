//! Comparisons where their answers are needed: a branch or a choice compares by itself, instead of looking at a bool that was made before.

use super::asm::{Alu, Cond};
use super::mir::{GSrc, M, R, Role};
use super::tidy::Counts;

/// A bool in a register, and the comparison that says the same.
struct Answer {
    r: R,
    comparison: M,
    cond: Cond,
}

fn reads_flags(m: Option<&M>) -> bool {
    matches!(m, Some(M::JumpIf(..) | M::Cmov { .. } | M::Set { .. }))
}

/// Compares words where they lie that are loaded for nothing else.
pub(super) fn compare_in_memory(code: &mut Vec<M>, counts: &mut Counts) {
    let mut kept: Vec<M> = Vec::with_capacity(code.len());
    for &m in &*code {
        let compared = match m {
            M::Test { wide: false, a, b } if a == b => Some((a, GSrc::Imm(0), 2)),
            M::Cmp { wide: false, a, b } if b != GSrc::R(a) => Some((a, b, 1)),
            _ => None,
        };
        match (compared, kept.last_mut()) {
            (Some((a, b, reads)), Some(last @ M::Load { .. }))
                if let M::Load { bytes: 4, signed: false, dst, at } = *last
                    && dst == a
                    && a.fixed().is_none()
                    && *counts.reads(a) == reads =>
            {
                *counts.reads(a) = 0;
                *last = M::CmpWord { at, b };
            }
            _ => kept.push(m),
        }
    }
    *code = kept;
}

/// Lets branches and choices compare by themselves, and takes out the bools that are not read any more.
pub(super) fn branch_by_comparisons(code: &mut Vec<M>, counts: &mut Counts) {
    let mut answers: Vec<Answer> = Vec::new();
    for at in 0..code.len() {
        ask_again(&mut code[at..], &answers, counts);
        let mut m = code[at];
        if matches!(m, M::Label(_)) {
            answers.clear();
        }
        m.visit(&mut |r, role| {
            if matches!(role, Role::Def | Role::Both) {
                answers.retain_mut(|answer| {
                    let mut is_of = answer.r == *r;
                    answer.comparison.visit(&mut |operand, _| is_of |= operand == r);
                    !is_of
                });
            }
        });
        match m {
            M::Set { cond, dst } if at > 0 => {
                if let comparison @ (M::Cmp { .. } | M::Test { .. }) = code[at - 1] {
                    answers.push(Answer { r: dst, comparison, cond });
                }
            }
            M::Alu { op: Alu::Xor, wide: false, dst, a, b: GSrc::Imm(1) } if dst != a => {
                if let Some(&Answer { comparison, cond, .. }) = answers.iter().find(|answer| answer.r == a) {
                    answers.push(Answer { r: dst, comparison, cond: cond.inverse() });
                }
            }
            _ => {}
        }
    }
    drop_unread_bools(code, counts);
}

/// Compares anew where the code looks at an answer.
fn ask_again(code: &mut [M], answers: &[Answer], counts: &mut Counts) {
    let [M::Test { wide: false, a: r, b }, then, rest @ ..] = code else { return };
    let (M::JumpIf(wanted, _) | M::Cmov { cond: wanted, .. }) = then else { return };
    let Some(Answer { comparison, cond, .. }) = answers.iter().find(|answer| answer.r == *r) else { return };
    if r != b || reads_flags(rest.first()) || !matches!(wanted, Cond::Equal | Cond::NotEqual) {
        return;
    }
    *wanted = if *wanted == Cond::NotEqual { *cond } else { cond.inverse() };
    *counts.reads(*r) -= 2;
    code[0] = *comparison;
    code[0].visit(&mut |r, _| *counts.reads(*r) += 1);
}

fn drop_unread_bools(code: &mut Vec<M>, counts: &mut Counts) {
    let mut dead = vec![false; code.len()];
    for at in (1..code.len()).rev() {
        let unread = |r: R, counts: &mut Counts| r.fixed().is_none() && *counts.reads(r) == 0;
        let comparison = match code[at] {
            M::Set { dst, .. } if unread(dst, counts) => matches!(code[at - 1], M::Cmp { .. } | M::Test { .. }),
            M::Alu { op: Alu::Xor, wide: false, dst, b: GSrc::Imm(1), .. } if unread(dst, counts) => false,
            _ => continue,
        };
        if reads_flags(code.get(at + 1)) {
            continue;
        }
        for at in if comparison { at - 1..=at } else { at..=at } {
            dead[at] = true;
            code[at].visit(&mut |r, role| {
                if role == Role::Use {
                    *counts.reads(*r) -= 1;
                }
            });
        }
    }
    let mut dead = dead.into_iter();
    code.retain(|_| dead.next() != Some(true));
}
