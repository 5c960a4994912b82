//! What this process has been granted, by address or handle: a hash table in memory of its own, so that
//! not one function of a C library is needed. The caller holds the lock of the process.
//! Never shrinks, and forgets everything in a forked child, which owns nothing.

use crate::kernel;

/// What a key is. The same number may be an address and a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AllocationKind {
    /// Bytes at an address.
    Piece = 1,
    Array = 2,
    /// A pool; its bytes are what it had reserved when last looked at.
    Pool = 3,
    /// A handle of physical memory; `extra` is the number of the memory.
    Handle = 4,
    /// Physical memory by our own number; `extra` counts handles and mappings.
    Physical = 5,
    /// An address where physical memory is mapped; `extra` is the number of the memory.
    Mapping = 6,
    /// A graph that may be launched; its bytes are what its own allocations need.
    Graph = 7,
    Executable = 8,
    /// A device; its bytes are what it keeps for graphs.
    GraphReserve = 9,
    /// A limit of a context that costs memory.
    ContextLimit = 10,
    /// A device; `extra` is its primary context.
    Primary = 11,
    /// A context.
    Context = 12,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct AllocationEntry {
    pub bytes: u64,
    pub context: u64,
    pub extra: u64,
    /// Place in the control page.
    pub device: u32,
}

#[repr(C)]
struct Cell {
    key: u64,
    entry: AllocationEntry,
    /// 0: free and always was; 255: free now; else a kind.
    kind: u8,
}

const NEVER: u8 = 0;
const GONE: u8 = 255;
const FIRST_CAPACITY: usize = 1024;

/// All zero: empty, and without memory yet.
#[repr(C)]
pub struct AllocationTable {
    cells: *mut Cell,
    capacity: usize,
    /// Cells that are not `NEVER`.
    touched: usize,
    living: usize,
}

impl AllocationTable {
    /// # Safety
    /// `cells` and `capacity` were set together in `grow`.
    unsafe fn all(&self) -> &[Cell] {
        if self.capacity == 0 {
            return &[];
        }
        // SAFETY: promised by the caller; the memory was zero, which is a free cell.
        unsafe { core::slice::from_raw_parts(self.cells, self.capacity) }
    }

    /// # Safety
    /// As `all`.
    unsafe fn all_mut(&mut self) -> &mut [Cell] {
        if self.capacity == 0 {
            return &mut [];
        }
        // SAFETY: promised by the caller.
        unsafe { core::slice::from_raw_parts_mut(self.cells, self.capacity) }
    }

    /// Remembers; false when the kernel has no memory for it. An older entry of that key is replaced.
    pub fn insert(&mut self, kind: AllocationKind, key: u64, entry: AllocationEntry) -> bool {
        if let Some(old) = self.get(kind, key) {
            *old = entry;
            return true;
        }
        if (self.touched + 1) * 4 > self.capacity * 3 && !self.grow() {
            return false;
        }
        self.place(kind, key, entry);
        true
    }

    fn place(&mut self, kind: AllocationKind, key: u64, entry: AllocationEntry) {
        let mask = self.capacity - 1;
        let mut at = spread(kind, key) & mask;
        // SAFETY: set together in `grow`.
        let cells = unsafe { self.all_mut() };
        while cells[at].kind != NEVER && cells[at].kind != GONE {
            at = (at + 1) & mask;
        }
        let fresh = cells[at].kind == NEVER;
        cells[at] = Cell {
            key,
            entry,
            kind: kind as u8,
        };
        self.touched += usize::from(fresh);
        self.living += 1;
    }

    fn find(&self, kind: AllocationKind, key: u64) -> Option<usize> {
        if self.capacity == 0 {
            return None;
        }
        let mask = self.capacity - 1;
        let mut at = spread(kind, key) & mask;
        // SAFETY: set together in `grow`.
        let cells = unsafe { self.all() };
        // Ends, because a quarter of the cells never was touched.
        loop {
            match cells[at].kind {
                NEVER => return None,
                found if found == kind as u8 && cells[at].key == key => return Some(at),
                _ => at = (at + 1) & mask,
            }
        }
    }

    pub fn get(&mut self, kind: AllocationKind, key: u64) -> Option<&mut AllocationEntry> {
        let at = self.find(kind, key)?;
        // SAFETY: set together in `grow`.
        Some(unsafe { &mut self.all_mut()[at].entry })
    }

    pub fn remove(&mut self, kind: AllocationKind, key: u64) -> Option<AllocationEntry> {
        let at = self.find(kind, key)?;
        self.living -= 1;
        // SAFETY: set together in `grow`.
        let cell = unsafe { &mut self.all_mut()[at] };
        cell.kind = GONE;
        Some(cell.entry)
    }

    /// Calls `visit` with every entry of a kind; those it says true of are forgotten.
    pub fn sweep(
        &mut self,
        kind: AllocationKind,
        mut visit: impl FnMut(u64, &mut AllocationEntry) -> bool,
    ) {
        let mut gone = 0;
        // SAFETY: set together in `grow`.
        for cell in unsafe { self.all_mut() } {
            if cell.kind == kind as u8 && visit(cell.key, &mut cell.entry) {
                cell.kind = GONE;
                gone += 1;
            }
        }
        self.living -= gone;
    }

    /// A table with room for twice what lives, without the graves.
    fn grow(&mut self) -> bool {
        let capacity = (self.living * 4).next_power_of_two().max(FIRST_CAPACITY);
        let Some((memory, _)) = kernel::map_memory(capacity * size_of::<Cell>()) else {
            return false;
        };
        let old = AllocationTable {
            cells: core::mem::replace(&mut self.cells, memory.cast()),
            capacity: core::mem::replace(&mut self.capacity, capacity),
            touched: core::mem::take(&mut self.touched),
            living: core::mem::take(&mut self.living),
        };
        // SAFETY: the old pair was set together here.
        for cell in unsafe { old.all() } {
            if let Some(kind) = AllocationKind::of(cell.kind) {
                self.place(kind, cell.key, cell.entry);
            }
        }
        if old.capacity > 0 {
            // SAFETY: nothing points into the old table any more.
            unsafe { kernel::unmap(old.cells.cast(), old.capacity * size_of::<Cell>()) };
        }
        true
    }
}

impl AllocationKind {
    fn of(number: u8) -> Option<Self> {
        use AllocationKind::*;
        let kinds = [
            Piece,
            Array,
            Pool,
            Handle,
            Physical,
            Mapping,
            Graph,
            Executable,
            GraphReserve,
            ContextLimit,
            Primary,
            Context,
        ];
        kinds.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// Addresses are multiples of 512 and more: the low bits must not decide alone.
fn spread(kind: AllocationKind, key: u64) -> usize {
    let mixed = (key ^ (kind as u64) << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ mixed >> 29) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> AllocationTable {
        AllocationTable {
            cells: std::ptr::null_mut(),
            capacity: 0,
            touched: 0,
            living: 0,
        }
    }

    fn entry(bytes: u64) -> AllocationEntry {
        AllocationEntry {
            bytes,
            context: bytes % 3,
            extra: 0,
            device: 0,
        }
    }

    #[test]
    fn what_is_entered_is_found_until_it_is_removed() {
        let mut ledger = empty();
        for key in 0..50_000u64 {
            assert!(ledger.insert(AllocationKind::Piece, key * 512, entry(key)));
        }
        for key in 0..50_000u64 {
            assert_eq!(
                ledger
                    .get(AllocationKind::Piece, key * 512)
                    .map(|found| found.bytes),
                Some(key)
            );
        }
        for key in 0..50_000u64 {
            assert_eq!(
                ledger
                    .remove(AllocationKind::Piece, key * 512)
                    .map(|found| found.bytes),
                Some(key)
            );
            assert_eq!(ledger.remove(AllocationKind::Piece, key * 512), None);
        }
        assert_eq!(ledger.living, 0);
    }

    #[test]
    fn the_same_number_may_be_two_things() {
        let mut ledger = empty();
        ledger.insert(AllocationKind::Piece, 7, entry(1));
        ledger.insert(AllocationKind::Array, 7, entry(2));
        ledger.insert(AllocationKind::Array, 7, entry(3));
        assert_eq!(ledger.remove(AllocationKind::Piece, 7), Some(entry(1)));
        assert_eq!(ledger.remove(AllocationKind::Array, 7), Some(entry(3)));
        assert_eq!(ledger.get(AllocationKind::Array, 7), None);
    }

    #[test]
    fn a_table_that_is_filled_and_emptied_for_ever_stays_small() {
        let mut ledger = empty();
        for key in 0..1_000_000u64 {
            ledger.insert(AllocationKind::Piece, key, entry(1));
            ledger.remove(AllocationKind::Piece, key);
        }
        assert!(ledger.capacity <= 4 * FIRST_CAPACITY, "{}", ledger.capacity);
    }

    #[test]
    fn a_sweep_forgets_only_what_it_says() {
        let mut ledger = empty();
        for key in 0..300 {
            ledger.insert(AllocationKind::Piece, key, entry(key));
        }
        ledger.insert(AllocationKind::Array, 1, entry(0));
        ledger.sweep(AllocationKind::Piece, |_, entry| entry.context == 0);
        assert_eq!(ledger.living, 201);
        assert_eq!(ledger.get(AllocationKind::Piece, 3), None);
        assert!(ledger.get(AllocationKind::Piece, 4).is_some());
        assert!(ledger.get(AllocationKind::Array, 1).is_some());
    }
}
