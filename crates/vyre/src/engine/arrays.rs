//! Which arrays there are, and which make room when a device is full.

use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use vyre_spec::Diagnostic;

use super::{Inner, lock};
use crate::Error;
use crate::runtime::{Device, MemoryUse, Storage, late};

/// Every array of an engine.
#[derive(Default)]
pub(crate) struct Arrays(Mutex<Vec<Weak<Storage>>>);

/// Holders that statistics and messages name.
const MOST_NAMED: usize = 5;
/// Arrays smaller than this make no room worth speaking of, and are not kept in the list.
const SMALLEST: u64 = 4096;

impl Arrays {
    pub(crate) fn add(&self, storage: &Arc<Storage>) {
        if storage.bytes < SMALLEST {
            return;
        }
        let mut list = lock(&self.0);
        if list.len() == list.capacity() {
            list.retain(|array| array.strong_count() > 0);
        }
        list.push(Arc::downgrade(storage));
    }

    fn alive(&self) -> Vec<Arc<Storage>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Inner {
    /// Makes room on a device: waits for memory that work under way is the last to use, then moves the array that was not used for longest
    /// to the host. False when nothing more can be done.
    pub(crate) fn make_room(
        &self,
        device: &Device,
        asking: Option<&Storage>,
        deadline: Option<Instant>,
    ) -> Result<bool, Error> {
        if device.place == Device::HOST {
            return Ok(self.host.trim() > 0);
        }
        if let Some(ticket) = device.memory.has_parked() {
            let limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // How that work ended is for those who own it.
            let ended = device.backend.wait(ticket, limit);
            if limit.is_some_and(|limit| limit.is_zero()) && matches!(ended, Ok(None)) {
                return Err(late());
            }
            device.memory.trim();
            return Ok(true);
        }
        let mut idle: Vec<(u64, Arc<Storage>)> = Vec::new();
        for array in self.arrays.alive() {
            if asking.is_none_or(|asking| !std::ptr::eq(&*array, asking))
                && let Some(used) = array.use_on(device)
            {
                idle.push((used, array));
            }
        }
        idle.sort_by_key(|(used, _)| *used);
        for (_, array) in &idle {
            let freed = array.leave(device)?;
            if freed > 0 {
                tracing::info!(device = device.id.as_str(), bytes = freed, "an idle array made room on a full device");
                device.memory.trim();
                return Ok(true);
            }
        }
        // What is in use makes room later.
        if let Some(user) = idle.iter().find_map(|(_, array)| array.user_on(device)) {
            return match user.wait(deadline) {
                Ok(false) => Err(late()),
                Ok(true) | Err(_) => Ok(true),
            };
        }
        Ok(false)
    }

    /// An error of a full device that names who fills it.
    pub(crate) fn name_holders(&self, device: &Device, error: Error) -> Error {
        let holders = self.holders(device);
        if holders.is_empty() {
            return error;
        }
        let named: Vec<String> = holders.iter().map(|(name, bytes)| format!("{name} ({bytes} bytes)")).collect();
        let mut diagnostic: Diagnostic = error.diagnostic().clone();
        diagnostic.message = format!("{}; the largest arrays there: {}", diagnostic.message, named.join(", "));
        diagnostic.into()
    }

    fn holders(&self, device: &Device) -> Vec<(String, u64)> {
        let mut holders: Vec<(String, u64)> = Vec::new();
        for array in self.arrays.alive() {
            if array.use_on(device).is_some() {
                let name = array.label().map_or_else(|| "an array".to_owned(), |label| format!("`{label}`"));
                holders.push((name, array.bytes));
            }
        }
        holders.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        holders.truncate(MOST_NAMED);
        holders
    }

    pub(super) fn memory(&self) -> Vec<MemoryUse> {
        let devices = lock(&self.devices).clone();
        let mut uses = Vec::new();
        let [used, idle] = self.host.usage();
        uses.push(MemoryUse { device: "host".to_owned(), used, idle, ..MemoryUse::default() });
        for device in devices.iter().filter(|device| device.place != Device::HOST) {
            let [used, idle] = device.memory.usage();
            uses.push(MemoryUse {
                device: device.id.as_str().to_owned(),
                used,
                idle,
                budget: device.memory.budget(),
                holders: self.holders(device),
            });
        }
        uses
    }
}
