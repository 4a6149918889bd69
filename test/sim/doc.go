// Package sim runs masterd's own dispatch, start, exchange, evidence, adopt and
// reconcile code against a simulated Salt master, event bus and minions, in one
// process, in the time of a synctest bubble, and checks the invariants of
// design.md after every step.
//
// A schedule is made from a seed: which faults there are and how likely each
// is, when callers call, when operators look after what is uncertain, what is
// dropped, delayed, doubled, killed, lost, cloned, put back from yesterday. Each
// draw is made from the seed and the name of what it is for, so that a seed
// gives the same schedule again however goroutines are scheduled (but for events
// of one and the same nanosecond).
//
// A schedule has three parts. While its plan lasts anything may go wrong. Then
// everything heals, and what is under way comes to its end. At last an operator
// brings every target back (bringback.go): he settles what is uncertain, adopts
// what has to be adopted, and sends one more request, which has to run.
//
// What is real: internal/dispatch, start, exchange, evidence, adopt, reconcile,
// receipt, message (every message is sealed and signed, every answer has its
// MAC) and, in a share of the schedules, internal/ledger on a disk. What is a
// model:
//
//   - the receipts (test/sim/memstore, which passes internal/store/storetest,
//     and is compared with the real one where that doesn't reach);
//   - the ledger (contract_test.go compares it with the real one);
//   - the executor's decisions (minion.go, after internal/minion). Messages are
//     not opened, since RSA would take most of the time: the model reads what
//     was sealed. One test opens each of them and compares.
//
// Nothing that may happen is left out of a schedule for being hard on us: the
// database is put back or begun anew a moment after a start went out, a ledger
// while its tickets live, a machine is cloned while a request runs on it, and a
// database and a ledger go back together. What isn't held against the product
// is what nobody can know, and no more than that (check.go says so in code):
//
//   - A run that database and ledger have both lost (design.md, invariant 4): its
//     claim isn't in the copy of the database that was put back, its record isn't
//     in the ledger, the machine has rebooted since, and the generation that the
//     copy knows of that ledger doesn't tell either. It may happen again.
//   - A request whose start was lost with the database, and which its caller
//     then sends again, may be refused (failed, nothing published) before its
//     ledger could be asked: while the ledger is silent after a put-back nobody
//     knows of the first start. It still never runs twice. What waited in the
//     copy itself is never refused unless its own ledger says that it didn't run.
//     An end that the copy already held stays as it was.
//   - An operator's word that was taken while nobody answered, or while two
//     machines answer as one target. It is marked as his, proves nothing and is
//     never reused.
//   - A run on a machine whose whole disk was put back to before it: it is
//     undone.
//
// Defects of the product that schedules have found and that aren't mended yet
// are listed in known.go. They are counted; -strict makes violations of them.
package sim
