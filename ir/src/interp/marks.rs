//! Who touched which element.

/// Who touched each element of a buffer: the number of a task, from 1 on.
pub(super) struct Marks {
    writer: Vec<u64>,
    /// Two of the tasks that have read, different ones if there are two.
    readers: Vec<[u64; 2]>,
}

impl Marks {
    pub(super) fn new(len: usize) -> Self {
        Self { writer: vec![0; len], readers: vec![[0; 2]; len] }
    }

    /// Notes a read; false if another task has written the element. Tasks up to number `over` do
    /// not count.
    pub(super) fn read(&mut self, offset: usize, task: u64, over: u64) -> bool {
        let [first, second] = &mut self.readers[offset];
        if *first <= over || *first == task {
            *first = task;
        } else {
            *second = task;
        }
        let writer = self.writer[offset];
        writer <= over || writer == task
    }

    /// Notes a write; false if another task has read or written the element. Tasks up to number
    /// `over` do not count.
    pub(super) fn write(&mut self, offset: usize, task: u64, over: u64) -> bool {
        let free = |mark: u64| mark <= over || mark == task;
        let alone = free(self.writer[offset]) && self.readers[offset].into_iter().all(free);
        self.writer[offset] = task;
        alone
    }
}
