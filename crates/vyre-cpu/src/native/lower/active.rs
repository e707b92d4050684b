//! The vectors that the code at hand is for, and which of their lanes are active.

use std::rc::Rc;

use vyre_foundation::kernel::Value;

use super::super::hash::Map;
use super::super::mir::R;
use super::super::shape::{self, Shapes};
use super::Lower;
use super::value::Rep;

/// One vector of a block, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Component {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) z: u32,
}

pub(super) struct Active {
    pub(super) components: Vec<Component>,
    /// For each set of axes, the first component that shares a component's place on them.
    pub(super) shared: Vec<Vec<usize>>,
    /// Components of the current run.
    pub(super) current: Vec<usize>,
    /// Active lanes; `None` when all are.
    pub(super) exec: Vec<Option<R>>,
    /// Branches and loops around the code at hand whose lanes part.
    pub(super) divergent: u32,
    /// A comparison takes lanes out of this mask, those for which it holds or those for which it does not; none when it makes a mask of its own.
    pub(super) compare_under: Option<(R, bool)>,
    /// Bools that are the same for all lanes of the block, tested before it.
    pub(super) settled: Vec<Option<bool>>,
    /// Those of them that hold whatever is asked around them.
    pub(super) holds: Vec<bool>,
    /// Values that were made before the block.
    pub(super) ready: Vec<bool>,
    /// How values change where the block was tested for edges.
    pub(super) even: Option<Rc<Shapes>>,
    /// Values in loops that differ evenly, and how much less than what they are made of they are, where they are.
    pub(super) evened: Map<Value, Option<R>>,
}

impl Active {
    pub(super) fn new(values: usize) -> Active {
        Active {
            components: Vec::new(),
            shared: Vec::new(),
            current: Vec::new(),
            exec: Vec::new(),
            divergent: 0,
            compare_under: None,
            settled: vec![None; values],
            holds: vec![false; values],
            ready: vec![false; values],
            even: None,
            evened: Map::default(),
        }
    }
}

impl Lower<'_> {
    /// From here on code is for these vectors, and nothing is known of their values yet.
    pub(super) fn set_components(&mut self, components: Vec<Component>) {
        let count = components.len();
        // Axes on which the components differ at all.
        let differ = |axis: u8, place: fn(&Component) -> u32| {
            if components.windows(2).any(|pair| place(&pair[0]) != place(&pair[1])) { axis } else { 0 }
        };
        let varying = differ(shape::X, |at| at.x) | differ(shape::Y, |at| at.y) | differ(shape::Z, |at| at.z);
        self.active.shared = (0..8u8)
            .map(|axes| {
                if axes & varying == 0 {
                    return vec![0; count];
                }
                if axes & varying == varying {
                    return (0..count).collect();
                }
                (0..count)
                    .map(|c| {
                        let same = |d: usize| {
                            (axes & shape::X == 0 || components[c].x == components[d].x)
                                && (axes & shape::Y == 0 || components[c].y == components[d].y)
                                && (axes & shape::Z == 0 || components[c].z == components[d].z)
                        };
                        (0..=c).find(|&d| same(d)).unwrap_or(c)
                    })
                    .collect()
            })
            .collect();
        let columns = self.facts.columns.last().map_or(0, |&end| end as usize);
        self.tiles.clear();
        self.reps = vec![Rep::None; columns * count.max(1)];
        self.active.components = components;
        self.active.exec = vec![None; count];
    }
}
