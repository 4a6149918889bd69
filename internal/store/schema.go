package store

import (
	"fmt"
	"strings"

	"github.com/oduflow/oduflow-salt/internal/receipt"
)

const (
	// applicationID marks our databases in the file's own header: "OdSR".
	applicationID = 0x4f645352
	// schemaVersion is what this program reads and writes. A change of
	// schema() needs a new number and a step in migrations.
	schemaVersion = 1
)

// migration brings a database from one schema version to the next, within one
// transaction.
type migration struct {
	from int
	sql  []string
}

// migrations are applied in order at open. Version 1 is the first.
var migrations []migration

// states of the domain, sorted by what the indexes and guards need.
func statesWhere(keep func(receipt.State) bool) []receipt.State {
	var out []receipt.State
	for _, s := range receipt.States() {
		if keep(s) {
			out = append(out, s)
		}
	}
	return out
}

func quoted[T ~string](names []T) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = "'" + string(n) + "'"
	}
	return "(" + strings.Join(q, ", ") + ")"
}

func allStates() string        { return quoted(receipt.States()) }
func busyStates() string       { return quoted(statesWhere(receipt.State.Busy)) }
func terminalStates() string   { return quoted(statesWhere(receipt.State.Terminal)) }
func unresolvedStates() string { return quoted(statesWhere(receipt.State.Unresolved)) }

// openStates are those that a second request of the same key is bound to.
func openStates() string {
	return quoted(statesWhere(func(s receipt.State) bool { return s == receipt.Queued || s.Busy() }))
}

func profiles() string {
	return quoted([]receipt.Profile{receipt.Custom, receipt.Configure, receipt.Production, receipt.Resize})
}

func hex(n int) string { return strings.Repeat("[0-9a-f]", n) }

func digits(n int) string { return strings.Repeat("[0-9]", n) }

// uuid is the CHECK of a canonical lower-case UUID.
func uuid(column string) string {
	return fmt.Sprintf("%s GLOB '%s-%s-%s-%s-%s'", column, hex(8), hex(4), hex(4), hex(4), hex(12))
}

func digest(column string) string {
	return fmt.Sprintf("length(%[1]s) = 64 AND %[1]s NOT GLOB '*[^0-9a-f]*'", column)
}

func label(column string, longest int) string {
	return fmt.Sprintf("length(%s) BETWEEN 1 AND %d", column, longest)
}

// word is the CHECK of a name of a closed list: raw text has no place here.
func word(column string, longest int) string {
	return label(column, longest) + " AND " + column + " NOT GLOB '*[^a-z_]*'"
}

// frozen are the guards of a table whose rows never change: no UPDATE, no
// DELETE, and no INSERT that meets an existing key. The last is what makes
// INSERT OR REPLACE harmless: it deletes the old row, without a delete trigger
// where recursive_triggers is off, but only after this guard has spoken. It
// also ends an UPSERT before it becomes an UPDATE. keys are the columns of each
// unique key.
func frozen(table string, keys ...[]string) []string {
	stmts := []string{
		fmt.Sprintf("CREATE TRIGGER %[1]s_never_changes BEFORE UPDATE ON %[1]s BEGIN\n"+
			"  SELECT RAISE(ABORT, '%[1]s: rows never change');\nEND", table),
		neverDeleted(table),
	}
	return append(stmts, neverReplaced(table, keys...))
}

func neverDeleted(table string) string {
	return fmt.Sprintf("CREATE TRIGGER %[1]s_never_deleted BEFORE DELETE ON %[1]s BEGIN\n"+
		"  SELECT RAISE(ABORT, '%[1]s: rows are never deleted');\nEND", table)
}

func neverReplaced(table string, keys ...[]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TRIGGER %[1]s_never_replaced BEFORE INSERT ON %[1]s BEGIN\n", table)
	for _, key := range keys {
		equal := make([]string, len(key))
		for i, column := range key {
			equal[i] = column + " = NEW." + column
		}
		fmt.Fprintf(&b, "  SELECT RAISE(ABORT, '%[1]s: exists')\n   WHERE EXISTS (SELECT 1 FROM %[1]s WHERE %[2]s);\n",
			table, strings.Join(equal, " AND "))
	}
	b.WriteString("END")
	return b.String()
}

// schema gives the statements that make an empty database of schemaVersion.
// Times are microseconds since 1970 UTC.
func schema() []string {
	var s []string
	s = append(s, epochTables()...)
	s = append(s, requestTables()...)
	s = append(s, receiptTables()...)
	s = append(s, transitionTables()...)
	s = append(s, settlementTables()...)
	s = append(s, recordTables()...)
	return append(s, tokenTables()...)
}

// epochTables: who this database is. bound is the last request that was bound
// before the epoch began.
func epochTables() []string {
	epochs := `CREATE TABLE epochs (
  n     INTEGER PRIMARY KEY CHECK (n > 0),
  epoch TEXT NOT NULL UNIQUE CHECK (length(epoch) = 32 AND epoch NOT GLOB '*[^0-9a-f]*'),
  at    INTEGER NOT NULL,
  cause TEXT NOT NULL CHECK (cause IN ('init', 'restore')),
  bound INTEGER NOT NULL CHECK (bound >= 0)
) STRICT`
	return append([]string{epochs}, frozen("epochs", []string{"n"}, []string{"epoch"})...)
}

// requestTables: what each UUID is bound to, for ever, and the sources.
func requestTables() []string {
	sources := `CREATE TABLE sources (
  n         INTEGER PRIMARY KEY CHECK (n > 0),
  digest    TEXT NOT NULL UNIQUE CHECK (` + digest("digest") + `),
  source    BLOB NOT NULL,
  canonical BLOB NOT NULL
) STRICT`
	requests := `CREATE TABLE requests (
  n            INTEGER PRIMARY KEY CHECK (n > 0),
  request      TEXT NOT NULL UNIQUE CHECK (` + uuid("request") + `),
  execution    TEXT NOT NULL CHECK (` + uuid("execution") + `),
  target       TEXT NOT NULL CHECK (` + label("target", 255) + `),
  instance     TEXT NOT NULL CHECK (` + uuid("instance") + `),
  profile      TEXT NOT NULL CHECK (profile IN ` + profiles() + `),
  digest       TEXT NOT NULL CHECK (` + digest("digest") + `),
  revision     INTEGER NOT NULL,
  previous     TEXT CHECK (previous IS NULL OR ` + uuid("previous") + `),
  again        INTEGER NOT NULL CHECK (again IN (0, 1)),
  requester    TEXT NOT NULL CHECK (length(requester) <= 255),
  accept_until INTEGER,
  declared     INTEGER NOT NULL CHECK (declared >= 0),
  accepted_at  INTEGER NOT NULL,
  from_ledger  INTEGER NOT NULL DEFAULT 0 CHECK (from_ledger IN (0, 1)),
  CHECK (from_ledger = 0 OR (execution = request AND declared = 0 AND previous IS NULL AND again = 0))
) STRICT`
	// Sources are never deleted, so this holds for ever. What was made of a
	// ledger has none: nobody here has seen it.
	sourced := `CREATE TRIGGER requests_source BEFORE INSERT ON requests WHEN NEW.from_ledger = 0 BEGIN
  SELECT RAISE(ABORT, 'requests: no such source')
   WHERE NOT EXISTS (SELECT 1 FROM sources WHERE digest = NEW.digest);
END`
	bind := `CREATE TRIGGER requests_alias BEFORE INSERT ON requests WHEN NEW.execution <> NEW.request BEGIN
  SELECT RAISE(ABORT, 'requests: bound to no receipt of the same key')
   WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE request = NEW.execution AND target = NEW.target
     AND instance = NEW.instance AND profile = NEW.profile AND digest = NEW.digest);
END`
	own := `CREATE TRIGGER requests_receipt AFTER INSERT ON requests WHEN NEW.execution = NEW.request BEGIN
  INSERT INTO receipts (request, accepted, target, instance, profile, digest, state, seq)
  VALUES (NEW.request, NEW.n, NEW.target, NEW.instance, NEW.profile, NEW.digest, 'queued', 0);
END`
	s := append([]string{sources}, frozen("sources", []string{"n"}, []string{"digest"})...)
	s = append(s, requests)
	s = append(s, frozen("requests", []string{"n"}, []string{"request"})...)
	return append(s, sourced, bind, own)
}

// receiptTables: one row an execution, made and kept by triggers only. state,
// seq, jid and last mirror the newest transition; all else is frozen.
func receiptTables() []string {
	receipts := `CREATE TABLE receipts (
  request  TEXT PRIMARY KEY REFERENCES requests (request),
  accepted INTEGER NOT NULL UNIQUE REFERENCES requests (n),
  target   TEXT NOT NULL,
  instance TEXT NOT NULL,
  profile  TEXT NOT NULL,
  digest   TEXT NOT NULL,
  state    TEXT NOT NULL CHECK (state IN ` + allStates() + `),
  seq      INTEGER NOT NULL CHECK (seq >= 0),
  jid      TEXT CHECK (jid IS NULL OR jid GLOB '` + digits(20) + `'),
  last     INTEGER REFERENCES transitions (n),
  CHECK ((seq = 0) = (last IS NULL))
) STRICT, WITHOUT ROWID`
	key := "target, instance, profile, digest"
	indexes := []string{
		"CREATE UNIQUE INDEX receipts_busy ON receipts (target) WHERE state IN " + busyStates(),
		"CREATE UNIQUE INDEX receipts_open ON receipts (" + key + ") WHERE state IN " + openStates(),
		"CREATE UNIQUE INDEX receipts_jid ON receipts (jid)",
		"CREATE INDEX receipts_confirmed ON receipts (" + key + ", last) WHERE state IN " + terminalStates(),
		"CREATE INDEX receipts_uncertain ON receipts (target, last) WHERE state = 'uncertain'",
		"CREATE INDEX receipts_unresolved ON receipts (state, accepted) WHERE state IN " + unresolvedStates(),
		"CREATE INDEX receipts_target ON receipts (target, accepted)",
	}
	guards := []string{
		neverDeleted("receipts"),
		`CREATE TRIGGER receipts_made_by_requests BEFORE INSERT ON receipts BEGIN
  SELECT RAISE(ABORT, 'receipts: exists')
   WHERE EXISTS (SELECT 1 FROM receipts WHERE request = NEW.request);
  SELECT RAISE(ABORT, 'receipts: another receipt of the same key is open')
   WHERE EXISTS (SELECT 1 FROM receipts WHERE target = NEW.target AND instance = NEW.instance
     AND profile = NEW.profile AND digest = NEW.digest AND state IN ` + openStates() + `);
  SELECT RAISE(ABORT, 'receipts: not made by its request')
   WHERE NEW.state <> 'queued' OR NEW.seq <> 0 OR NEW.jid IS NOT NULL OR NEW.last IS NOT NULL
      OR NOT EXISTS (SELECT 1 FROM requests WHERE request = NEW.request AND execution = NEW.request
        AND n = NEW.accepted AND target = NEW.target AND instance = NEW.instance
        AND profile = NEW.profile AND digest = NEW.digest);
END`,
		`CREATE TRIGGER receipts_moved_by_transitions BEFORE UPDATE ON receipts BEGIN
  SELECT RAISE(ABORT, 'receipts: a frozen column')
   WHERE NEW.request IS NOT OLD.request OR NEW.accepted IS NOT OLD.accepted OR NEW.target IS NOT OLD.target
      OR NEW.instance IS NOT OLD.instance OR NEW.profile IS NOT OLD.profile OR NEW.digest IS NOT OLD.digest;
  SELECT RAISE(ABORT, 'receipts: not moved by a transition')
   WHERE NOT EXISTS (SELECT 1 FROM transitions WHERE n = NEW.last AND request = OLD.request
     AND seq = OLD.seq + 1 AND seq = NEW.seq AND from_state = OLD.state AND to_state = NEW.state
     AND jid IS NEW.jid);
END`,
	}
	return append(append([]string{receipts}, indexes...), guards...)
}

// transitionTables: the append-only history. Each row holds what the receipt
// is after it, so the newest row and the request are the whole receipt.
func transitionTables() []string {
	allowed := `CREATE TABLE allowed_transitions (
  event      TEXT NOT NULL,
  from_state TEXT NOT NULL CHECK (from_state IN ` + allStates() + `),
  to_state   TEXT NOT NULL CHECK (to_state IN ` + allStates() + `),
  PRIMARY KEY (event, from_state, to_state)
) STRICT, WITHOUT ROWID`
	var rows []string
	for _, t := range receipt.Transitions() {
		rows = append(rows, fmt.Sprintf("('%s', '%s', '%s')", t.Event, t.From, t.To))
	}
	fill := "INSERT INTO allowed_transitions (event, from_state, to_state) VALUES\n  " + strings.Join(rows, ",\n  ")
	noMore := `CREATE TRIGGER allowed_transitions_complete BEFORE INSERT ON allowed_transitions BEGIN
  SELECT RAISE(ABORT, 'allowed_transitions: complete');
END`
	s := append([]string{allowed, fill, noMore}, frozen("allowed_transitions")[:2]...)

	transitions := `CREATE TABLE transitions (
  n               INTEGER PRIMARY KEY CHECK (n > 0),
  request         TEXT NOT NULL REFERENCES receipts (request),
  seq             INTEGER NOT NULL CHECK (seq > 0),
  event           TEXT NOT NULL,
  from_state      TEXT NOT NULL,
  to_state        TEXT NOT NULL,
  at              INTEGER NOT NULL,
  actor           TEXT NOT NULL CHECK (` + label("actor", 255) + `),
  code            TEXT CHECK (code IS NULL OR ` + word("code", 64) + `),
  detail          TEXT CHECK (detail IS NULL OR ` + word("detail", 64) + `),
  jid             TEXT CHECK (jid IS NULL OR jid GLOB '` + digits(20) + `'),
  ticket          TEXT,
  fingerprint     TEXT,
  ledger          TEXT,
  ticket_at       INTEGER,
  dispatched_at   INTEGER,
  finished_at     INTEGER,
  declared        INTEGER NOT NULL CHECK (declared >= 0),
  passed          INTEGER NOT NULL CHECK (passed >= 0),
  failed          INTEGER NOT NULL CHECK (failed >= 0),
  not_run         INTEGER NOT NULL CHECK (not_run >= 0),
  checks_passed   INTEGER NOT NULL,
  checks          INTEGER NOT NULL CHECK (checks = 1 AND checks_passed IN (0, 1)),
  blocker         TEXT CHECK (blocker IS NULL OR ` + uuid("blocker") + `),
  blocker_profile TEXT,
  blocker_since   INTEGER,
  settled         INTEGER NOT NULL CHECK (settled IN (0, 1)),
  UNIQUE (request, seq),
  FOREIGN KEY (event, from_state, to_state) REFERENCES allowed_transitions (event, from_state, to_state),
  CHECK (passed + failed + not_run <= declared),
  CHECK ((finished_at IS NOT NULL) = (to_state IN ` + terminalStates() + `)),
  CHECK ((code IS NOT NULL) = (to_state IN ('refused', 'failed', 'uncertain'))),
  CHECK ((to_state = 'refused') = (checks_passed = 0)),
  CHECK (to_state <> 'dispatching' OR (jid IS NOT NULL AND ticket IS NOT NULL AND dispatched_at IS NOT NULL)),
  CHECK (to_state <> 'succeeded' OR settled = 1 OR passed = declared),
  CHECK (finished_at IS NULL OR settled = 1 OR passed + failed + not_run = declared),
  CHECK (settled = (event = 'settle'))
) STRICT`
	guard := `CREATE TRIGGER transitions_fit BEFORE INSERT ON transitions BEGIN
  SELECT RAISE(ABORT, 'transitions: not allowed')
   WHERE NOT EXISTS (SELECT 1 FROM allowed_transitions
     WHERE event = NEW.event AND from_state = NEW.from_state AND to_state = NEW.to_state);
  SELECT RAISE(ABORT, 'transitions: not from the current state')
   WHERE NOT EXISTS (SELECT 1 FROM receipts
     WHERE request = NEW.request AND state = NEW.from_state AND seq = NEW.seq - 1);
  SELECT RAISE(ABORT, 'transitions: the jid never changes')
   WHERE EXISTS (SELECT 1 FROM receipts WHERE request = NEW.request AND jid IS NOT NULL AND jid IS NOT NEW.jid);
  SELECT RAISE(ABORT, 'transitions: the jid is taken')
   WHERE NEW.jid IS NOT NULL
     AND EXISTS (SELECT 1 FROM receipts WHERE jid = NEW.jid AND request <> NEW.request);
  SELECT RAISE(ABORT, 'transitions: never started by this database')
   WHERE NEW.event = 'claim' AND EXISTS (SELECT 1 FROM requests WHERE request = NEW.request
     AND (from_ledger = 1 OR n <= (SELECT max(bound) FROM epochs)));
  SELECT RAISE(ABORT, 'transitions: no settlement says so')
   WHERE NEW.event = 'settle' AND NOT EXISTS (SELECT 1 FROM settlements
     WHERE request = NEW.request AND outcome = NEW.to_state AND by = NEW.actor);
  SELECT RAISE(ABORT, 'transitions: the target is busy')
   WHERE NEW.to_state IN ` + busyStates() + `
     AND EXISTS (SELECT 1 FROM receipts WHERE target = (SELECT target FROM receipts WHERE request = NEW.request)
       AND state IN ` + busyStates() + ` AND request <> NEW.request);
END`
	mirror := `CREATE TRIGGER transitions_move AFTER INSERT ON transitions BEGIN
  UPDATE receipts SET state = NEW.to_state, seq = NEW.seq, jid = NEW.jid, last = NEW.n
   WHERE request = NEW.request;
END`
	s = append(s, transitions)
	s = append(s, frozen("transitions", []string{"n"}, []string{"request", "seq"})...)
	return append(s, guard, mirror)
}

// settlementTables: what an operator said of an uncertain receipt, once and for
// ever, and which of that the target's own ledger has recorded since.
func settlementTables() []string {
	settlements := `CREATE TABLE settlements (
  n           INTEGER PRIMARY KEY CHECK (n > 0),
  request     TEXT NOT NULL UNIQUE REFERENCES receipts (request),
  outcome     TEXT NOT NULL CHECK (outcome IN ('succeeded', 'failed')),
  reason      TEXT NOT NULL CHECK (` + label("reason", 4096) + `),
  observed    TEXT NOT NULL CHECK (` + label("observed", 65536) + `),
  server_gone INTEGER NOT NULL CHECK (server_gone IN (0, 1)),
  by          TEXT NOT NULL CHECK (` + label("by", 255) + `),
  at          INTEGER NOT NULL
) STRICT`
	fit := `CREATE TRIGGER settlements_fit BEFORE INSERT ON settlements BEGIN
  SELECT RAISE(ABORT, 'settlements: not of an uncertain receipt')
   WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE request = NEW.request AND state = 'uncertain');
END`
	deliveries := `CREATE TABLE deliveries (
  n       INTEGER PRIMARY KEY CHECK (n > 0),
  request TEXT NOT NULL UNIQUE REFERENCES settlements (request),
  at      INTEGER NOT NULL
) STRICT`
	s := append([]string{settlements}, frozen("settlements", []string{"n"}, []string{"request"})...)
	s = append(s, fit, deliveries)
	return append(s, frozen("deliveries", []string{"n"}, []string{"request"})...)
}

// recordTables: adoptions, of which the newest of a target counts, and the log
// of evidence.
func recordTables() []string {
	adoptions := `CREATE TABLE adoptions (
  n           INTEGER PRIMARY KEY CHECK (n > 0),
  target      TEXT NOT NULL CHECK (` + label("target", 255) + `),
  instance    TEXT NOT NULL CHECK (` + uuid("instance") + `),
  fingerprint TEXT NOT NULL,
  ledger      TEXT NOT NULL,
  machine     TEXT NOT NULL,
  at          INTEGER NOT NULL,
  by          TEXT NOT NULL CHECK (` + label("by", 255) + `),
  reason      TEXT NOT NULL CHECK (length(reason) <= 4096)
) STRICT`
	witnesses := `CREATE TABLE witnesses (
  n         INTEGER PRIMARY KEY CHECK (n > 0),
  request   TEXT NOT NULL REFERENCES receipts (request),
  at        INTEGER NOT NULL,
  kind      TEXT NOT NULL CHECK (` + word("kind", 32) + `),
  result    TEXT NOT NULL CHECK (` + word("result", 32) + `),
  code      TEXT CHECK (code IS NULL OR ` + word("code", 64) + `),
  declared  INTEGER,
  passed    INTEGER,
  failed    INTEGER,
  not_run   INTEGER,
  ledger    TEXT CHECK (ledger IS NULL OR ` + label("ledger", 128) + `),
  conflict  INTEGER NOT NULL CHECK (conflict IN (0, 1))
) STRICT`
	s := append([]string{adoptions, "CREATE INDEX adoptions_target ON adoptions (target, n)"},
		frozen("adoptions", []string{"n"})...)
	s = append(s, witnesses, "CREATE INDEX witnesses_request ON witnesses (request, n)",
		"CREATE INDEX witnesses_conflict ON witnesses (request) WHERE conflict = 1",
		"CREATE INDEX witnesses_duplicate ON witnesses (request, at) WHERE code = 'duplicate_target'")
	return append(s, frozen("witnesses", []string{"n"})...)
}

// tokenTables: a token is known by its hash; a revocation is a row of its own.
func tokenTables() []string {
	tokens := `CREATE TABLE tokens (
  id         TEXT PRIMARY KEY CHECK (` + label("id", 64) + `),
  hash       BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  scope      TEXT NOT NULL CHECK (` + label("scope", 64) + `),
  name       TEXT NOT NULL CHECK (length(name) <= 255),
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL CHECK (length(created_by) <= 255)
) STRICT, WITHOUT ROWID`
	revocations := `CREATE TABLE revocations (
  id TEXT PRIMARY KEY REFERENCES tokens (id),
  at INTEGER NOT NULL,
  by TEXT NOT NULL CHECK (length(by) <= 255)
) STRICT, WITHOUT ROWID`
	s := append([]string{tokens}, frozen("tokens", []string{"id"}, []string{"hash"})...)
	s = append(s, revocations)
	return append(s, frozen("revocations", []string{"id"})...)
}
