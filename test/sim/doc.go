// Package sim runs masterd's own dispatch, start, exchange, evidence and adopt
// code against a simulated Salt master, event bus and minions, in one process,
// in the time of a synctest bubble, and checks the invariants of design.md
// after every step.
//
// A schedule is made from a seed: which faults there are and how likely each
// is, when callers call, what is dropped, delayed, doubled, killed, restored
// from yesterday. Each draw is made from the seed and the name of what it is
// for, so that a seed gives the same schedule again however goroutines are
// scheduled (but for events of one and the same nanosecond).
//
// What is real: internal/dispatch, start, exchange, evidence, adopt, receipt,
// message (every message is sealed and signed, every answer has its MAC) and,
// in a share of the schedules, internal/ledger on a disk. What is a model:
//
//   - the receipts (test/sim/memstore, which passes internal/store/storetest);
//   - the ledger (contract_test.go compares it with the real one);
//   - the executor's decisions (minion.go, after internal/minion). Messages are
//     not opened, since RSA would take most of the time: the model reads what
//     was sealed. One test opens each of them and compares.
//
// What no protocol of ours can tell apart is left out, and nothing else:
//
//   - database and ledger of one request both lost or put back;
//   - a machine cloned while a record of it is prepared or started;
//   - a copy of the database put back within 150 s of the last start.
package sim
