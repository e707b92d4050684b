use std::fmt;

use serde::{Deserialize, Serialize};

use crate::backend::Knobs;
use crate::specialization::{SpecMap, SpecValue};

/// One way to launch a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The workgroup's shape.
    pub workgroup_size: [u32; 3],
    /// Values for specialization constants, such as a tile size.
    #[serde(default, skip_serializing_if = "SpecMap::is_empty")]
    pub specialization: SpecMap,
    /// How the compiler makes the code.
    #[serde(default, skip_serializing_if = "Knobs::is_default")]
    pub knobs: Knobs,
    /// What runs instead of the program: [`Variant::id`](crate::variant::Variant::id).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

impl Candidate {
    /// The program itself with workgroups of this shape.
    pub fn of_shape(workgroup_size: [u32; 3]) -> Candidate {
        Candidate { workgroup_size, specialization: SpecMap::new(), knobs: Knobs::default(), variant: None }
    }
}

/// What may be tuned about a program or an op: workgroup shapes, and the values of some specialization constants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    shapes: Vec<[u32; 3]>,
    constants: Vec<(String, Vec<SpecValue>)>,
}

/// The candidates of a space in their fixed order, the default first, and where each one stands in the space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidates {
    /// The candidates; the first is the default.
    pub list: Vec<Candidate>,
    /// For each candidate its position along every axis of the space, so that what is learnt about one says something about
    /// its neighbours.
    pub places: Vec<Vec<u32>>,
    /// The candidate to try first, and in words what that is known from.
    pub first: Option<usize>,
    /// See `first`.
    pub prior: Option<String>,
}

impl Candidates {
    /// Keeps those for which it is so; the default stays.
    pub fn retain(&mut self, keep: impl Fn(&Candidate) -> bool) {
        let kept: Vec<bool> = self.list.iter().enumerate().map(|(at, candidate)| at == 0 || keep(candidate)).collect();
        self.first = self.first.filter(|&at| kept[at]).map(|at| kept[..at].iter().filter(|kept| **kept).count());
        let mut flags = kept.iter();
        self.list.retain(|_| *flags.next().unwrap_or(&false));
        let mut flags = kept.iter();
        self.places.retain(|_| *flags.next().unwrap_or(&false));
    }

    /// Puts those with smaller keys first, behind the default: of launches that are as good as each other the earliest is taken.
    pub fn prefer<K: Ord>(&mut self, key: impl Fn(&Candidate) -> K) {
        let mut order: Vec<usize> = (0..self.list.len()).collect();
        order.get_mut(1..).unwrap_or_default().sort_by_cached_key(|&at| key(&self.list[at]));
        self.first = self.first.and_then(|first| order.iter().position(|&at| at == first));
        self.list = order.iter().map(|&at| self.list[at].clone()).collect();
        self.places = order.iter().map(|&at| self.places[at].clone()).collect();
    }

    /// Begins with a candidate, if it is one of them and not the default, for the reason that is given in words.
    pub fn begin_with(&mut self, candidate: &Candidate, why: impl Into<String>) {
        self.first = self.list.iter().position(|known| known == candidate).filter(|&at| at > 0);
        self.prior = self.first.map(|_| why.into());
    }
}

/// `16 x 16, tile = 8, 1 x 4 in one`.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(variant) = &self.variant {
            // What tells versions apart is for files.
            return f.write_str(variant.rsplit_once('#').map_or(variant, |(name, _)| name));
        }
        let [x, y, z] = self.workgroup_size;
        match [y, z] {
            [1, 1] => write!(f, "{x}")?,
            [_, 1] => write!(f, "{x} x {y}")?,
            _ => write!(f, "{x} x {y} x {z}")?,
        }
        for (name, value) in self.specialization.iter() {
            match value {
                SpecValue::U32(value) => write!(f, ", {name} = {value}")?,
                SpecValue::I32(value) => write!(f, ", {name} = {value}")?,
                SpecValue::F32(value) => write!(f, ", {name} = {value}")?,
                SpecValue::Bool(value) => write!(f, ", {name} = {value}")?,
                other => write!(f, ", {name} = {other:?}")?,
            }
        }
        if !self.knobs.is_default() {
            write!(f, ", {}", self.knobs)?;
        }
        Ok(())
    }
}

impl Space {
    /// Nothing to tune but what is added.
    pub fn new() -> Self {
        Space::default()
    }

    /// The workgroup shapes of so many dimensions (1 to 3) whose sizes are powers of two and whose invocations are one of
    /// [`WORKGROUP_CANDIDATES`](super::WORKGROUP_CANDIDATES), up to a limit.
    #[must_use]
    pub fn with_shapes_up_to(mut self, dimensions: u32, max_invocations: u32) -> Self {
        let powers = |limit: u32| (0..=limit.ilog2()).map(|bits| 1u32 << bits);
        for &invocations in super::WORKGROUP_CANDIDATES.iter().filter(|&&size| size <= max_invocations) {
            match dimensions {
                0 | 1 => self.shapes.push([invocations, 1, 1]),
                2 => self.shapes.extend(powers(invocations).map(|y| [invocations / y, y, 1])),
                _ => self.shapes.extend(
                    powers(invocations).flat_map(|z| powers(invocations / z).map(move |y| [invocations / z / y, y, z])),
                ),
            }
        }
        self
    }

    /// The workgroup shapes of a kernel whose launch may change along these axes and has so many invocations along each: powers of
    /// two, [`WORKGROUP_CANDIDATES`](super::WORKGROUP_CANDIDATES) in all, not far larger than the launch itself. Rows are longer
    /// than columns or not much shorter, because neighbours in memory are mostly neighbours along x. The size along other axes is 1.
    #[must_use]
    pub fn with_shapes_along(mut self, axes: [bool; 3], domain: [u64; 3], max_invocations: u32) -> Self {
        let most = |axis: usize| if axes[axis] { domain[axis].clamp(1, 1 << 16).next_power_of_two() * 4 } else { 1 };
        let powers = |limit: u32| (0..=limit.max(1).ilog2()).map(|bits| 1u32 << bits);
        for &invocations in super::WORKGROUP_CANDIDATES.iter().filter(|&&size| size <= max_invocations) {
            for z in powers(invocations) {
                for y in powers(invocations / z) {
                    let shape = [invocations / z / y, y, z];
                    let fits = (0..3).all(|axis| u64::from(shape[axis]) <= most(axis));
                    let long = !axes[0] || (shape[0] * 4 >= y && shape[0] * 4 >= z && z <= 8);
                    if fits && long {
                        self.shapes.push(shape);
                    }
                }
            }
        }
        self
    }

    /// Adds a workgroup shape.
    #[must_use]
    pub fn with_shape(mut self, shape: [u32; 3]) -> Self {
        self.shapes.push(shape);
        self
    }

    /// Adds a specialization constant and the values it may take, neighbours beside each other.
    #[must_use]
    pub fn with_constant<V: Into<SpecValue>>(
        mut self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        self.constants.push((name.into(), values.into_iter().map(Into::into).collect()));
        self
    }

    /// The shapes that were added.
    pub fn shapes(&self) -> &[[u32; 3]] {
        &self.shapes
    }

    /// Every combination of the constants' values, at most so many, and where each stands along every constant. Without constants it is
    /// the one without values.
    pub fn constants(&self, most: usize) -> Vec<(SpecMap, Vec<u32>)> {
        let mut all = vec![(SpecMap::new(), Vec::new())];
        for (name, values) in &self.constants {
            let mut longer = Vec::new();
            for (map, at) in &all {
                for (position, value) in values.iter().enumerate() {
                    let (mut map, mut at): (SpecMap, Vec<u32>) = (map.clone(), at.clone());
                    map.insert(name.clone(), value.clone());
                    at.push(position as u32);
                    longer.push((map, at));
                }
            }
            longer.truncate(most.max(1));
            all = longer;
        }
        all
    }

    /// Every combination that fits the device, after the default, which is always one of them. At most `most`.
    pub fn candidates(&self, default: Candidate, max_invocations: u32, most: usize) -> Candidates {
        let fits = |shape: &[u32; 3]| {
            let invocations = shape.iter().fold(1u64, |product, &size| product.saturating_mul(u64::from(size)));
            (1..=u64::from(max_invocations)).contains(&invocations)
        };
        let mut shapes: Vec<[u32; 3]> = self.shapes.iter().copied().filter(fits).collect();
        if shapes.is_empty() {
            shapes.push(default.workgroup_size);
        }
        let mut list = vec![default];
        let mut places = vec![Vec::new()];
        // Counts through the combinations with the last axis fastest.
        let lengths: Vec<usize> =
            std::iter::once(shapes.len()).chain(self.constants.iter().map(|(_, values)| values.len().max(1))).collect();
        let mut counter = vec![0usize; lengths.len()];
        'all: while list.len() < most.max(1) || places[0].is_empty() {
            let mut specialization = list[0].specialization.clone();
            for ((name, values), &at) in self.constants.iter().zip(&counter[1..]) {
                if let Some(value) = values.get(at) {
                    specialization.insert(name.clone(), value.clone());
                }
            }
            let (workgroup_size, knobs) = (shapes[counter[0]], list[0].knobs);
            let candidate = Candidate { workgroup_size, specialization, knobs, variant: None };
            let place = place(&candidate.workgroup_size, &counter[1..]);
            if candidate == list[0] {
                places[0] = place;
            } else if list.len() < most && !list.contains(&candidate) {
                list.push(candidate);
                places.push(place);
            }
            for axis in (0..lengths.len()).rev() {
                counter[axis] += 1;
                if counter[axis] < lengths[axis] {
                    continue 'all;
                }
                counter[axis] = 0;
            }
            break;
        }
        if places[0].is_empty() {
            // The default is no point of the space; the first values of its constants are as good a guess as any.
            places[0] = place(&list[0].workgroup_size, &vec![0; self.constants.len()]);
        }
        Candidates { list, places, first: None, prior: None }
    }
}

/// Shapes are neighbours when their sizes along the axes differ by few doublings.
fn place(shape: &[u32; 3], constants: &[usize]) -> Vec<u32> {
    shape.iter().map(|size| size.max(&1).ilog2()).chain(constants.iter().map(|&at| at as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(workgroup_size: [u32; 3]) -> Candidate {
        Candidate::of_shape(workgroup_size)
    }

    #[test]
    fn the_default_is_first_and_only_once() {
        let space = Space::new().with_shapes_up_to(1, 1024);
        let found = space.candidates(plain([64, 1, 1]), 256, 100);
        let sizes: Vec<_> = found.list.iter().map(|candidate| candidate.workgroup_size[0]).collect();
        assert_eq!(sizes, [64, 32, 128, 256]);
        assert_eq!(found.places[0], [6, 0, 0]);
        let foreign = space.candidates(plain([7, 3, 1]), 1024, 100);
        assert_eq!(foreign.list.len(), 7);
        assert_eq!(foreign.list[0].workgroup_size, [7, 3, 1]);
        assert_eq!(Space::new().candidates(plain([8, 8, 1]), 1024, 100).list.len(), 1);
    }

    #[test]
    fn what_is_preferred_comes_first_but_for_the_default() {
        let mut found = Space::new().with_shapes_up_to(1, 1024).candidates(plain([64, 1, 1]), 512, 100);
        found.begin_with(&plain([512, 1, 1]), "a test");
        let places = found.places.clone();
        found.prefer(|candidate| candidate.workgroup_size[0].abs_diff(200));
        let sizes: Vec<_> = found.list.iter().map(|candidate| candidate.workgroup_size[0]).collect();
        assert_eq!((sizes, found.first), (vec![64, 256, 128, 32, 512], Some(4)));
        assert_eq!(found.places, [0, 3, 2, 1, 4].map(|at| places[at].clone()));
    }

    #[test]
    fn constants_multiply_the_shapes() {
        let space = Space::new()
            .with_shapes_up_to(1, 1024)
            .with_constant("tile", [4u32, 8])
            .with_constant("unroll", [false, true]);
        let found = space.candidates(plain([64, 1, 1]), 1024, 100);
        // The default sets no constants, so it stands beside the 6 x 2 x 2 combinations.
        assert_eq!(found.list.len(), 25);
        assert!(found.places.iter().all(|place| place.len() == 5));
        assert_eq!(found.list[1].specialization.len(), 2);
        assert_eq!(space.candidates(plain([64, 1, 1]), 1024, 10).list.len(), 10);
    }

    #[test]
    fn shapes_follow_the_axes_and_the_size_of_a_launch() {
        let shapes = |axes, domain| Space::new().with_shapes_along(axes, domain, 1024).shapes;
        let picture = shapes([true, true, false], [1920, 1080, 1]);
        for wanted in [[128, 1, 1], [64, 4, 1], [32, 8, 1], [16, 16, 1], [8, 8, 1], [1024, 1, 1]] {
            assert!(picture.contains(&wanted), "{wanted:?} of {picture:?}");
        }
        assert!(picture.len() < 50 && !picture.contains(&[1, 1024, 1]), "{picture:?}");
        assert!(picture.iter().all(|shape| shape[2] == 1));
        assert_eq!(shapes([true, false, false], [1 << 20, 1, 1]).len(), super::super::WORKGROUP_CANDIDATES.len());
        // A launch of 40 along x has no use for rows of 512.
        assert!(shapes([true, true, false], [40, 4000, 1]).iter().all(|shape| shape[0] <= 256));
        assert!(shapes([false, true, false], [1, 5000, 1]).iter().all(|shape| shape[0] == 1 && shape[1] >= 32));
        assert!(shapes([true, true, true], [64, 64, 64]).contains(&[8, 4, 4]));
        // Nothing fits a launch of four: only the kernel's own is left.
        assert!(shapes([true, false, false], [4, 1, 1]).is_empty());
    }

    #[test]
    fn shapes_have_up_to_three_dimensions() {
        let space = Space::new().with_shapes_up_to(3, 64);
        let found = space.candidates(plain([32, 1, 1]), 64, 1000);
        // 32 = 2^5 splits into three powers in 21 ways, 64 in 28.
        assert_eq!(found.list.len(), 49);
        assert!(found.list.iter().any(|candidate| candidate.workgroup_size == [4, 4, 4]));
        assert_eq!(Space::new().with_shapes_up_to(2, 64).candidates(plain([32, 1, 1]), 64, 1000).list.len(), 13);
    }
}
