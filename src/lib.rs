//! fardel
