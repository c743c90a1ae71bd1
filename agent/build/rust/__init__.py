"""`#[repr(C)]` types of a Rust file: parsed, laid out by C's rules, mirrored in C and compiled."""
