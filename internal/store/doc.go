// Package store keeps masterd's receipts in SQLite. It is the only importer of
// the driver.
//
// What it promises:
//
//   - An answer is given after the commit that it tells of was synced
//     (synchronous=FULL in WAL mode, read back on every connection).
//   - A receipt changes by receipt.Apply alone, and each change is a row of
//     transitions, added under the state and sequence number that the caller
//     believes. Whoever believes wrong gets *LostRaceError.
//   - The database itself refuses to change or delete what is recorded:
//     triggers and CHECKs made from the domain's own tables (schema.go) hold
//     for any program that opens the file, also without recursive_triggers.
//   - One masterd a database: a flock for life on <path>.lock.
//
// One goroutine writes. What waits for it is committed together (group
// commit), each piece under a SAVEPOINT of its own, so that one that is refused
// takes nothing along. A commit that failed may be on disk all the same, so its
// outcome is unknown: everybody in it is told not_writable, the database is
// closed and opened again from disk with all checks, and what is true then is
// what a repeated call is told. Readers have connections of their own and see
// only what is committed.
package store
