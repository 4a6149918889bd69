// Package ledger is a minion's own durable memory of the requests that it was
// asked to run: what was prepared, started, begun, finished and fenced, the
// minion's identity, the live ticket, and the probe of the lease. The format
// is described in docs/ledger.md.
//
// Every fact is one file that is created whole and once: written beside its
// place, synced, linked, the folder synced. Two facts that exclude each other
// share one name, so the link decides which of them is true:
//
//	prepared.json   the request, its digest and its current ticket (replaced
//	                by a repeated prepare, as long as there is no decision)
//	decision.json   started | fenced
//	effect.json     begun | refused | never_began      after started
//	outcome.json    finished                           after begun
//
// A Session holds the ledger's short lock. Nothing reads or writes a record
// without it, so what a session has seen stays true until it is closed. The
// lock is never held while anything runs; the lease is another lock, held by
// the Salt job process for as long as a run takes.
package ledger
