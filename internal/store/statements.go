package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// preparer is a connection or a pool.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// reads are the statements that both the writer and the readers use.
type reads struct {
	bound      *sql.Stmt // a request's own binding and the receipt it is bound to
	receipt    *sql.Stmt
	open       *sql.Stmt
	confirmed  *sql.Stmt
	quarantine *sql.Stmt
	busy       *sql.Stmt
	lastJID    *sql.Stmt
	unresolved *sql.Stmt
	target     *sql.Stmt
	canonical  *sql.Stmt
	source     *sql.Stmt
	history    *sql.Stmt
	witnesses  *sql.Stmt
	tokens     *sql.Stmt
	token      *sql.Stmt
	tokenByID  *sql.Stmt
	stats      *sql.Stmt
	settlement *sql.Stmt
	owed       *sql.Stmt
	conflicts  *sql.Stmt
	debts      *sql.Stmt
	epochs     *sql.Stmt
	lines      *sql.Stmt
	forgotten  *sql.Stmt
	putBack    *sql.Stmt
	pool       *sql.DB // for queries whose text depends on a filter; nil on the writer
}

// writes are the writer's statements.
type writes struct {
	*reads
	begin, commit, rollback  *sql.Stmt
	savepoint, undo, release *sql.Stmt

	insertSource     *sql.Stmt
	insertRequest    *sql.Stmt
	insertTransition *sql.Stmt
	insertAdoption   *sql.Stmt
	insertWitness    *sql.Stmt
	insertToken      *sql.Stmt
	insertRevocation *sql.Stmt
	insertRecord     *sql.Stmt
	insertSettlement *sql.Stmt
	insertDelivery   *sql.Stmt
	insertGeneration *sql.Stmt
	raiseGeneration  *sql.Stmt
	insertPutBack    *sql.Stmt
	seen             *sql.Stmt
}

func (w *writes) exec(ctx context.Context, s *sql.Stmt, args ...any) error {
	_, err := s.ExecContext(ctx, args...)
	return err
}

// bindingColumns of requests q, and the rest of a receipt: r, and t, its
// newest transition, which is missing for one that was only just bound.
const (
	bindingColumns = `q.request, q.target, q.instance, q.profile, q.digest, q.revision, q.previous, q.again,
  q.requester, q.accept_until, q.declared, q.accepted_at`
	receiptColumns = bindingColumns + `, r.state, r.seq, r.jid,
  t.code, t.detail, t.ticket, t.fingerprint, t.ledger, t.ticket_at, t.dispatched_at, t.finished_at, t.at,
  t.declared, t.passed, t.failed, t.not_run, t.checks_passed, t.checks,
  t.blocker, t.blocker_profile, t.blocker_since, t.settled,
  q.from_ledger, q.n <= (SELECT bound FROM epochs ORDER BY n DESC LIMIT 1)`
	receiptTablesJoined = `receipts r JOIN requests q ON q.request = r.request LEFT JOIN transitions t ON t.n = r.last`
	sameKey             = `r.target = +?1 AND r.instance = +?2 AND r.profile = +?3 AND r.digest = +?4`
	blockerColumns      = `r.request, r.profile`
)

// plan is a list of statements to prepare and where each goes.
//
// Values in a WHERE are written +?1, not ?1. With a bare one SQLite notes that
// its value may change the query's plan, and the driver, which clears all
// values after each use, makes it plan anew every time; that cost more than
// all else together.
type plan []struct {
	to    **sql.Stmt
	query string
}

func (p plan) prepare(ctx context.Context, c preparer) error {
	for _, s := range p {
		stmt, err := c.PrepareContext(ctx, s.query) //nolint:sqlclosecheck // it lives as long as its connection
		if err != nil {
			return fmt.Errorf("%w in %s", err, s.query)
		}
		*s.to = stmt
	}
	return nil
}

func (r *reads) plan() plan {
	from := " FROM " + receiptTablesJoined + " WHERE "
	return plan{
		{&r.bound, `SELECT a.request, a.target, a.instance, a.profile, a.digest, a.revision, a.previous, a.again,
  a.requester, a.accept_until, a.declared, a.accepted_at, ` + receiptColumns + `
  FROM requests a JOIN receipts r ON r.request = a.execution JOIN requests q ON q.request = r.request
  LEFT JOIN transitions t ON t.n = r.last WHERE a.request = +?1`},
		{&r.receipt, "SELECT " + receiptColumns + from + "r.request = +?1"},
		{&r.open, "SELECT " + receiptColumns + from + sameKey + " AND r.state IN " + openStates()},
		{&r.confirmed, "SELECT " + receiptColumns + from + sameKey + " AND r.state IN " + terminalStates() +
			" ORDER BY r.last DESC LIMIT 1"},
		{&r.quarantine, "SELECT " + blockerColumns + ", t.at FROM receipts r JOIN transitions t ON t.n = r.last" +
			" WHERE r.target = +?1 AND r.state = 'uncertain' AND r.request <> +?2 ORDER BY r.last LIMIT 1"},
		{&r.busy, "SELECT " + blockerColumns + ", t.dispatched_at FROM receipts r JOIN transitions t ON t.n = r.last" +
			" WHERE r.target = +?1 AND r.state IN " + busyStates() + " AND r.request <> +?2"},
		{&r.lastJID, "SELECT jid FROM receipts WHERE jid IS NOT NULL ORDER BY jid DESC LIMIT 1"},
		{&r.unresolved, "SELECT " + receiptColumns + from + "r.state IN " + unresolvedStates() +
			" ORDER BY q.accepted_at, q.n"},
		{&r.target, `SELECT target, instance, fingerprint, ledger, machine, at, by, reason,
  EXISTS (SELECT 1 FROM receipts r JOIN witnesses w ON w.request = r.request
    WHERE r.target = a.target AND w.code = 'duplicate_target' AND w.at >= a.at),
  coalesce((SELECT generation FROM generations WHERE adoption = a.n), 0),
  EXISTS (SELECT 1 FROM put_backs WHERE adoption = a.n)
  FROM adoptions a WHERE target = +?1 ORDER BY n DESC LIMIT 1`},
		{&r.canonical, "SELECT canonical FROM sources WHERE digest = +?1"},
		{&r.source, "SELECT source FROM sources WHERE digest = +?1"},
		{&r.history, "SELECT seq, event, from_state, to_state, at, actor, code FROM transitions WHERE request = +?1 ORDER BY seq"},
		{&r.witnesses, "SELECT at, kind, result, code, declared, passed, failed, not_run, ledger, conflict" +
			" FROM witnesses WHERE request = +?1 ORDER BY n"},
		{&r.tokens, "SELECT t.id, t.hash, t.scope, t.name, t.created_at, t.created_by, v.at FROM tokens t" +
			" LEFT JOIN revocations v ON v.id = t.id ORDER BY t.created_at, t.id"},
		{&r.token, "SELECT t.id, t.hash, t.scope, t.name, t.created_at, t.created_by, NULL FROM tokens t" +
			" WHERE t.hash = +?1 AND NOT EXISTS (SELECT 1 FROM revocations v WHERE v.id = t.id)"},
		{&r.tokenByID, "SELECT t.id, t.hash, t.scope, t.name, t.created_at, t.created_by, v.at FROM tokens t" +
			" LEFT JOIN revocations v ON v.id = t.id WHERE t.id = +?1"},
		{&r.stats, "SELECT state, count(*) FROM receipts WHERE state IN " + unresolvedStates() + " GROUP BY state"},
		{&r.settlement, `SELECT s.request, s.outcome, s.reason, s.observed, s.server_gone, s.by, s.at, d.at FROM settlements s
  LEFT JOIN deliveries d ON d.request = s.request WHERE s.request = +?1`},
		{&r.owed, `SELECT s.request, r.digest, s.outcome FROM receipts r JOIN settlements s ON s.request = r.request
  WHERE r.target = +?1 AND r.instance = +?2 AND s.server_gone = 0
    AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.request = s.request) ORDER BY s.n`},
		{&r.conflicts, "SELECT count(DISTINCT request) FROM witnesses WHERE conflict = 1"},
		{&r.debts, `SELECT count(*) FROM settlements s WHERE s.server_gone = 0
  AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.request = s.request)`},
		{&r.epochs, "SELECT epoch, at, cause FROM epochs ORDER BY n"},
		{&r.lines, `SELECT a.ledger, max(a.n), coalesce(g.generation, 0) FROM adoptions a
  LEFT JOIN generations g ON g.adoption = a.n WHERE a.target = +?1 GROUP BY a.ledger`},
		{&r.forgotten, `SELECT EXISTS (SELECT 1 FROM requests q JOIN adoptions a ON a.target = q.target
  JOIN put_backs p ON p.adoption = a.n WHERE q.request = +?1 AND a.ledger = +?2 AND q.n <= p.bound)`},
		{&r.putBack, `SELECT EXISTS (SELECT 1 FROM put_backs WHERE adoption =
  (SELECT max(n) FROM adoptions WHERE target = +?1))`},
	}
}

func prepareReads(ctx context.Context, p *sql.DB) (*reads, error) {
	r := &reads{pool: p}
	return r, r.plan().prepare(ctx, p)
}

func prepareWrites(ctx context.Context, conn *sql.Conn) (*writes, error) {
	w := &writes{reads: &reads{}}
	p := append(w.plan(), plan{
		{&w.begin, "BEGIN IMMEDIATE"},
		{&w.commit, "COMMIT"},
		{&w.rollback, "ROLLBACK"},
		{&w.savepoint, "SAVEPOINT job"},
		{&w.undo, "ROLLBACK TO job"},
		{&w.release, "RELEASE job"},
		{&w.insertSource, `INSERT INTO sources (digest, source, canonical) SELECT ?1, ?2, ?3
  WHERE NOT EXISTS (SELECT 1 FROM sources WHERE digest = +?1)`},
		{&w.insertRequest, `INSERT INTO requests (request, execution, target, instance, profile, digest, revision,
  previous, again, requester, accept_until, declared, accepted_at)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)`},
		{&w.insertTransition, `INSERT INTO transitions (request, seq, event, from_state, to_state, at, actor, code,
  detail, jid, ticket, fingerprint, ledger, ticket_at, dispatched_at, finished_at, declared, passed, failed, not_run,
  checks_passed, checks, blocker, blocker_profile, blocker_since, settled)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
  ?23, ?24, ?25, ?26)`},
		{&w.insertAdoption, `INSERT INTO adoptions (target, instance, fingerprint, ledger, machine, at, by, reason)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)`},
		{&w.insertWitness, `INSERT INTO witnesses (request, at, kind, result, code, declared, passed, failed, not_run,
  ledger, conflict) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)`},
		{&w.insertToken, `INSERT INTO tokens (id, hash, scope, name, created_at, created_by) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`},
		{&w.insertRecord, `INSERT INTO requests (request, execution, target, instance, profile, digest, revision,
  previous, again, requester, accept_until, declared, accepted_at, from_ledger)
  VALUES (?1, ?1, ?2, ?3, ?4, ?5, 0, NULL, 0, '', NULL, 0, ?6, 1)`},
		{&w.insertSettlement, `INSERT INTO settlements (request, outcome, reason, observed, server_gone, by, at)
  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)`},
		{&w.insertDelivery, `INSERT INTO deliveries (request, at) VALUES (?1, ?2)`},
		{&w.insertGeneration, `INSERT INTO generations (adoption, generation) SELECT ?1, ?2
  WHERE NOT EXISTS (SELECT 1 FROM generations WHERE adoption = +?1)`},
		{&w.raiseGeneration, `UPDATE generations SET generation = ?2 WHERE adoption = +?1 AND generation < +?2`},
		{&w.insertPutBack, `INSERT INTO put_backs (adoption, at, known, told, bound)
  SELECT ?1, ?2, ?3, ?4, coalesce((SELECT max(n) FROM requests), 0)
  WHERE NOT EXISTS (SELECT 1 FROM put_backs WHERE adoption = +?1)`},
		{&w.seen, "SELECT coalesce((SELECT max(n) FROM requests), 0), coalesce((SELECT max(n) FROM transitions), 0)"},
		{&w.insertRevocation, `INSERT INTO revocations (id, at, by) VALUES (?1, ?2, ?3)`},
	}...)
	return w, p.prepare(ctx, conn)
}

// each runs scan for every row, and never forgets to close them or to look at
// how they ended.
func each(rows *sql.Rows, err error, scan func(row scanner) error) (e error) {
	if err != nil {
		return err
	}
	defer func() { e = errors.Join(e, rows.Close()) }()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
