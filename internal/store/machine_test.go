package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
)

// Issue 5, 1: the database's own constraints agree with the one state machine.
// Every event, from every state that a receipt is really in, to every state,
// with everything that a row can need: it takes exactly the table's.
func TestDatabaseAgreesWithTheMachine(t *testing.T) {
	path := filled(t)
	for name, settings := range strangers {
		t.Run(name, func(t *testing.T) {
			conn := stranger(t, path, settings)
			byState := map[receipt.State]string{}
			for _, row := range query(t, conn, "SELECT state, request FROM receipts WHERE target <> 'busy'") {
				byState[receipt.State(row[0])] = row[1]
			}
			byState[receipt.Dispatching] = query(t, conn, "SELECT request FROM receipts WHERE state = 'dispatching'")[0][0]
			events := []string{"invented"}
			for _, tr := range receipt.Transitions() {
				if !slices.Contains(events, string(tr.Event)) {
					events = append(events, string(tr.Event))
				}
			}
			taken := 0
			for _, is := range receipt.States() {
				request, ok := byState[is]
				if !ok {
					t.Fatalf("no receipt is %s", is)
				}
				for _, says := range receipt.States() {
					for _, to := range append(receipt.States(), "invented") {
						for _, event := range events {
							tr := receipt.Transition{Event: receipt.EventName(event), From: says, To: to}
							want := says == is && slices.Contains(receipt.Transitions(), tr)
							if got := tryTransition(t, conn, request, tr); got != want {
								t.Errorf("%s %s -> %s on one that is %s: taken is %v", event, says, to, is, got)
							}
							if want {
								taken++
							}
						}
					}
				}
			}
			if taken != len(receipt.Transitions()) {
				t.Errorf("%d transitions taken, the table has %d", taken, len(receipt.Transitions()))
			}
		})
	}
}

// tryTransition adds a row that is right but for what tr says, and takes it
// back.
func tryTransition(t *testing.T, conn *sql.Conn, request string, tr receipt.Transition) bool {
	t.Helper()
	execute(t, conn, "BEGIN IMMEDIATE")
	defer execute(t, conn, "ROLLBACK")
	code, finished, notRun, passed, checksPassed := "NULL", "NULL", 0, 0, 1
	switch tr.To {
	case receipt.Refused, receipt.Failed:
		code, finished, notRun = "'state_failed'", "1", 3
	case receipt.Succeeded:
		finished, passed = "1", 3
	case receipt.Uncertain:
		code = "'no_answer'"
	case receipt.Queued, receipt.Dispatching, receipt.Dispatched:
	}
	if tr.To == receipt.Refused {
		checksPassed = 0
	}
	settled := 0
	if tr.Event == receipt.EventSettle {
		settled = 1
		// Without one that says the same it is refused: see the back doors.
		_, err := conn.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO settlements (request, outcome, reason, observed, server_gone, by, at)
  VALUES ('%s', '%s', 'r', 'o', 0, 'masterd', 1)`, request, tr.To))
		if err != nil && !refused(err) {
			t.Fatalf("%+v: %v", tr, err)
		}
	}
	_, err := conn.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO transitions (request, seq, event, from_state, to_state, at, actor,
  code, jid, ticket, dispatched_at, finished_at, declared, passed, failed, not_run, checks_passed, checks, settled)
  SELECT request, seq + 1, '%s', '%s', '%s', 1, 'masterd', %s, coalesce(jid, '20261130120000999998'), 'ticket', 1, %s,
  3, %d, 0, %d, %d, 1, %d FROM receipts WHERE request = '%s'`,
		tr.Event, tr.From, tr.To, code, finished, passed, notRun, checksPassed, settled, request))
	if err != nil && !refused(err) {
		t.Fatalf("%+v: %v", tr, err)
	}
	return err == nil
}

// refused says that a CHECK, key or trigger spoke.
func refused(err error) bool {
	var e sqlite3.Error
	return errors.As(err, &e) && e.Code == sqlite3.ErrConstraint
}

// Hostile statements that hurt another row than their own, or come in by the
// back door. The database refuses each.
func TestDatabaseRefusesBackDoors(t *testing.T) {
	path := filled(t)
	busy, waits := receipttest.Request(7), receipttest.Request(8) // of one target
	transition := func(verb, request, extra string) string {
		return fmt.Sprintf(`%s INTO transitions (request, seq, event, from_state, to_state, at, actor, jid, ticket,
  dispatched_at, declared, passed, failed, not_run, checks_passed, checks, settled)
  VALUES ('%s', 1, 'claim', 'queued', 'dispatching', 1, 'masterd', %s, 'ticket', 1, 3, 0, 0, 0, 1, 1, 0)`,
			verb, request, extra)
	}
	freeJID := "'20261130120000999998'"
	takenJID := "(SELECT jid FROM receipts WHERE request = '" + busy + "')"
	cases := map[string]string{
		"a second busy receipt":                  transition("INSERT", waits, freeJID),
		"a second busy receipt in its place":     transition("INSERT OR REPLACE", waits, freeJID),
		"a second busy receipt, quietly":         transition("INSERT OR IGNORE", waits, freeJID),
		"another's jid":                          transition("INSERT", receipttest.Request(6), takenJID),
		"another's jid, replacing":               transition("INSERT OR REPLACE", receipttest.Request(6), takenJID),
		"a jid of 19 digits":                     transition("INSERT", receipttest.Request(6), "'2026113012000099999'"),
		"a claim without a jid":                  transition("INSERT", receipttest.Request(6), "NULL"),
		"a state by hand":                        "UPDATE receipts SET state = 'succeeded', seq = seq + 1 WHERE request = '" + busy + "'",
		"a state by hand, with another's row":    "UPDATE receipts SET state = 'succeeded', seq = 2, last = 2 WHERE request = '" + busy + "'",
		"a receipt without its request":          "INSERT INTO receipts VALUES ('" + receipttest.Request(55) + "', 99, 't', '" + receipttest.Instance("t") + "', 'custom', 'd', 'queued', 0, NULL, NULL)",
		"a receipt for an alias":                 "INSERT INTO receipts SELECT request, n, target, instance, profile, digest, 'queued', 0, NULL, NULL FROM requests WHERE execution <> request",
		"a second open receipt of one key":       requestRow("INSERT", receipttest.Request(55), receipttest.Request(55)),
		"a second open receipt, replacing":       requestRow("INSERT OR REPLACE", receipttest.Request(55), receipttest.Request(55)),
		"an alias of nothing":                    requestRow("INSERT", receipttest.Request(55), receipttest.Request(56)),
		"an alias of another key":                requestRow("INSERT", receipttest.Request(55), receipttest.Request(1)),
		"an upper-case request":                  requestRow("INSERT", strings.ToUpper("00000001-0000-4000-8000-00000000000a"), receipttest.Request(8)),
		"another allowed transition":             "INSERT INTO allowed_transitions VALUES ('settle', 'failed', 'succeeded')",
		"another allowed transition, replacing":  "INSERT OR REPLACE INTO allowed_transitions SELECT event, from_state, to_state FROM allowed_transitions",
		"a token revoked twice":                  "INSERT OR REPLACE INTO revocations VALUES ('aa', 99, 'x')",
		"a token un-revoked":                     "DELETE FROM revocations",
		"a token under another's hash":           "INSERT OR REPLACE INTO tokens SELECT 'cc', hash, 'custom', '', 1, '' FROM tokens WHERE id = 'aa'",
		"text where a number belongs":            "INSERT INTO adoptions VALUES (99, 't', '" + receipttest.Instance("t") + "', '', '', '', 'yesterday', 'root', '')",
		"a profile that doesn't exist":           strings.Replace(requestRow("INSERT", receipttest.Request(55), receipttest.Request(55)), "'custom'", "'anything'", 1),
		"free text as a witness":                 "INSERT INTO witnesses VALUES (99, '" + busy + "', 1, 'evidence', 'rm: cannot remove', NULL, NULL, NULL, NULL, NULL, NULL, 0)",
		"a success that isn't all of it":         finishRow(busy, "succeeded", "NULL", 2, 0, 1),
		"a failure that doesn't account for all": finishRow(busy, "failed", "'state_failed'", 1, 1, 0),
		"a failure without a code":               finishRow(busy, "failed", "NULL", 1, 1, 1),
		"a settlement that nobody has recorded": `INSERT INTO transitions (request, seq, event, from_state, to_state, at, actor,
  finished_at, declared, passed, failed, not_run, checks_passed, checks, settled) SELECT request, seq + 1, 'settle', 'uncertain',
  'succeeded', 1, 'uid 0', 1, 3, 0, 0, 0, 1, 1, 1 FROM receipts WHERE state = 'uncertain' AND target = 'lost'`,
		"a settlement of a busy receipt": "INSERT INTO settlements VALUES (99, '" + busy + "', 'failed', 'r', 'o', 0, 'uid 0', 1)",
		"a request without a source":     strings.Replace(requestRow("INSERT", receipttest.Request(55), receipttest.Request(8)), "digest, 1,", "'"+strings.Repeat("0", 64)+"', 1,", 1),
		"a record of a ledger, as an alias": strings.Replace(strings.Replace(requestRow("INSERT", receipttest.Request(55), receipttest.Request(8)),
			"accepted_at)", "accepted_at, from_ledger)", 1), "3, 1 FROM", "0, 1, 1 FROM", 1),
		"a start on a ledger that was put back": "INSERT INTO put_backs SELECT max(n), 1, 9, 1, 0 FROM adoptions WHERE target = 'waiting';" +
			transition("INSERT", receipttest.Request(6), freeJID),
		"a generation that shrinks":                  "UPDATE generations SET generation = generation - 1",
		"a generation of no adoption":                "UPDATE generations SET adoption = 1000",
		"a put-back that was none":                   "INSERT INTO put_backs SELECT max(n), 1, 9, 9, 0 FROM adoptions",
		"a put-back that is taken back":              "DELETE FROM put_backs",
		"a start of what waited in an earlier epoch": "INSERT INTO epochs VALUES (2, '" + strings.Repeat("a", 32) + "', 1, 'restore', 1000);" + transition("INSERT", receipttest.Request(6), freeJID),
	}
	for name, settings := range strangers {
		conn := stranger(t, path, settings)
		for what, statement := range cases {
			t.Run(name+"/"+what, func(t *testing.T) {
				execute(t, conn, "BEGIN IMMEDIATE")
				defer execute(t, conn, "ROLLBACK")
				_, err := conn.ExecContext(t.Context(), statement)
				if !refused(err) {
					t.Errorf("not refused (%v): %s", err, statement)
				}
			})
		}
		// The right ones, so that the cases above fail for their own reason.
		for _, statement := range []string{
			transition("INSERT", receipttest.Request(6), freeJID),
			requestRow("INSERT", receipttest.Request(55), receipttest.Request(8)),
			finishRow(busy, "succeeded", "NULL", 3, 0, 0),
			finishRow(busy, "failed", "'state_failed'", 1, 1, 1),
		} {
			execute(t, conn, "BEGIN IMMEDIATE")
			execute(t, conn, statement)
			execute(t, conn, "ROLLBACK")
		}
	}
}

// requestRow binds a request with the body of the 8th, which is queued.
func requestRow(verb, request, execution string) string {
	return fmt.Sprintf(`%s INTO requests (request, execution, target, instance, profile, digest, revision, again, requester,
  declared, accepted_at) SELECT '%s', '%s', target, instance, 'custom', digest, 1, 0, '', 3, 1 FROM requests
  WHERE request = '%s'`, verb, request, execution, receipttest.Request(8))
}

func finishRow(request, to, code string, passed, failed, notRun int) string {
	return fmt.Sprintf(`INSERT INTO transitions (request, seq, event, from_state, to_state, at, actor, code, jid, ticket,
  dispatched_at, finished_at, declared, passed, failed, not_run, checks_passed, checks, settled)
  SELECT request, 2, 'finish', 'dispatching', '%s', 1, 'masterd', %s, jid, 'ticket', 1, 1, 3, %d, %d, %d, 1, 1, 0
  FROM receipts WHERE request = '%s'`, to, code, passed, failed, notRun, request)
}
