//! Per-workload memoisation of values that sketches need for every config.

use std::any::Any;
use std::sync::{Arc, PoisonError, RwLock};

/// Memoised values, each with its key.
#[derive(Default)]
pub struct Once(RwLock<Vec<Box<dyn Any + Send + Sync>>>);

impl Once {
    /// Returns the value of a key among the values of its type, making it on the first call. If
    /// several threads make it at once, all get the same value.
    pub fn get<K, T>(&self, key: K, make: impl FnOnce() -> T) -> Arc<T>
    where
        K: PartialEq + Send + Sync + 'static,
        T: Send + Sync + 'static,
    {
        let find = |known: &[Box<dyn Any + Send + Sync>]| {
            let mut alike = known.iter().filter_map(|made| made.downcast_ref::<(K, Arc<T>)>());
            alike.find(|made| made.0 == key).map(|made| Arc::clone(&made.1))
        };
        if let Some(known) = find(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return known;
        }

        // Not under the lock, since making a value may ask for another one.
        let made = Arc::new(make());
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        find(&known).unwrap_or_else(|| {
            known.push(Box::new((key, Arc::clone(&made))));
            made
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_of_each_type_has_one_value_for_all_threads() {
        let once = Once::default();
        let all: Vec<Vec<Arc<usize>>> = std::thread::scope(|scope| {
            let ask = |thread: usize| (0..50).map(|key| once.get(key, || 100 * thread + key)).collect();
            let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || ask(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (key, first) in all[0].iter().enumerate() {
            assert_eq!(**first % 100, key);
            assert!(all.iter().all(|own| Arc::ptr_eq(&own[key], first)));
        }
        assert_eq!(*once.get(7, || "another type"), "another type");
        assert_eq!(*once.get("7", || 1_000), 1_000);
        assert_eq!(*once.get("7", || 2_000), 1_000);
    }

    #[test]
    fn making_one_may_ask_for_another() {
        let once = Once::default();
        assert_eq!(*once.get((), || *once.get("inner", || 2) + 1), 3);
    }
}
