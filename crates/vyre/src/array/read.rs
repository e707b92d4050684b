use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Element;
use crate::Error;
use crate::runtime::{Storage, WhenDone};

/// The elements of an array as a future. It holds the value that the array had when it was made, whatever is written later.
#[must_use = "nothing is read until it is awaited"]
pub struct Read<T> {
    storage: Arc<Storage>,
    length: usize,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Read<T> {
    pub(super) fn new(storage: Arc<Storage>, length: usize) -> Read<T> {
        Read { storage, length, element: PhantomData }
    }
}

impl<T: Element> Future for Read<T> {
    type Output = Result<Vec<T>, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let writers = self.storage.writers(&(0..self.storage.bytes));
        if let Some(writer) = writers.iter().find(|writer| !writer.is_over()) {
            let wake = WhenDone::Wake(context.waker().clone());
            return match self.storage.engine.watcher.when_done(writer, wake) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            };
        }
        let mut elements = vec![T::zeroed(); self.length];
        Poll::Ready(self.storage.read(0, bytemuck::cast_slice_mut(&mut elements), None).map(|()| elements))
    }
}
