//! Which backend runs what: measured latencies per operation and backend, and the table that keeps them.
