//! A bounded table in memory in which every key is made once, however many threads ask for it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex};

use vyre_spec::codes;

use super::disk::lock;
use crate::backend::BackendError;

/// Values by key, bounded, least recently used out first. Of many threads that ask for a missing key one makes the value and
/// the others wait for it.
pub struct SingleFlight<K, V> {
    capacity: usize,
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    slots: HashMap<K, Slot<V>>,
    clock: u64,
}

enum Slot<V> {
    Ready { value: V, used: u64 },
    Making(Arc<Flight<V>>),
}

struct Flight<V> {
    done: Mutex<Option<Result<V, BackendError>>>,
    wake: Condvar,
}

impl<K: Clone + Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// A table of at most so many values.
    pub fn new(capacity: usize) -> Self {
        SingleFlight { capacity, state: Mutex::new(State { slots: HashMap::new(), clock: 0 }) }
    }

    /// The value, when it is there.
    pub fn get(&self, key: &K) -> Option<V> {
        let mut state = lock(&self.state);
        state.clock += 1;
        let now = state.clock;
        match state.slots.get_mut(key)? {
            Slot::Ready { value, used } => {
                *used = now;
                Some(value.clone())
            }
            Slot::Making(_) => None,
        }
    }

    /// The value, made by `make` where it is missing. A failure is given to all that waited, and the next to ask tries
    /// again. `make` must not ask for its own key.
    pub fn get_or_make(&self, key: &K, make: impl FnOnce() -> Result<V, BackendError>) -> Result<V, BackendError> {
        let flight = {
            let mut state = lock(&self.state);
            state.clock += 1;
            let now = state.clock;
            match state.slots.get_mut(key) {
                Some(Slot::Ready { value, used }) => {
                    *used = now;
                    return Ok(value.clone());
                }
                Some(Slot::Making(flight)) => {
                    let flight = flight.clone();
                    drop(state);
                    return flight.wait();
                }
                None => {
                    let flight = Arc::new(Flight { done: Mutex::new(None), wake: Condvar::new() });
                    state.slots.insert(key.clone(), Slot::Making(flight.clone()));
                    flight
                }
            }
        };
        // Lands the flight with an error if `make` panics, so that nobody waits for ever.
        let landing = Landing { table: self, key, flight, landed: false };
        let result = make();
        landing.land(result)
    }

    /// Forgets a key.
    pub fn remove(&self, key: &K) {
        let mut state = lock(&self.state);
        if let Some(Slot::Ready { .. }) = state.slots.get(key) {
            state.slots.remove(key);
        }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        lock(&self.state).slots.values().filter(|slot| matches!(slot, Slot::Ready { .. })).count()
    }

    /// There is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn settle(&self, key: &K, result: Option<V>) {
        let mut state = lock(&self.state);
        state.clock += 1;
        let now = state.clock;
        match result {
            Some(value) => state.slots.insert(key.clone(), Slot::Ready { value, used: now }),
            None => state.slots.remove(key),
        };
        let ready = |slot: &Slot<V>| match slot {
            Slot::Ready { used, .. } => Some(*used),
            Slot::Making(_) => None,
        };
        let mut surplus = state.slots.values().filter_map(ready).count().saturating_sub(self.capacity);
        while surplus > 0 {
            let oldest =
                state.slots.iter().filter_map(|(key, slot)| Some((ready(slot)?, key))).min_by_key(|(used, _)| *used);
            let Some(oldest) = oldest.map(|(_, key)| key.clone()) else { break };
            state.slots.remove(&oldest);
            surplus -= 1;
        }
    }
}

impl<V: Clone> Flight<V> {
    fn wait(&self) -> Result<V, BackendError> {
        let mut done = lock(&self.done);
        loop {
            if let Some(result) = &*done {
                return result.clone();
            }
            done = self.wake.wait(done).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

struct Landing<'a, K: Clone + Eq + Hash, V: Clone> {
    table: &'a SingleFlight<K, V>,
    key: &'a K,
    flight: Arc<Flight<V>>,
    landed: bool,
}

impl<K: Clone + Eq + Hash, V: Clone> Landing<'_, K, V> {
    fn land(mut self, result: Result<V, BackendError>) -> Result<V, BackendError> {
        self.finish(result.clone());
        result
    }

    fn finish(&mut self, result: Result<V, BackendError>) {
        self.landed = true;
        self.table.settle(self.key, result.as_ref().ok().cloned());
        *lock(&self.flight.done) = Some(result);
        self.flight.wake.notify_all();
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Drop for Landing<'_, K, V> {
    fn drop(&mut self) {
        if !self.landed {
            let message = "the thread that compiled the pipeline panicked";
            self.finish(Err(BackendError::with_code(&codes::backend::FAILED, message)));
        }
    }
}
