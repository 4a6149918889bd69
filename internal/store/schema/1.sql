CREATE TABLE epochs (
  n     INTEGER PRIMARY KEY CHECK (n > 0),
  epoch TEXT NOT NULL UNIQUE CHECK (length(epoch) = 32 AND epoch NOT GLOB '*[^0-9a-f]*'),
  at    INTEGER NOT NULL,
  cause TEXT NOT NULL CHECK (cause IN ('init', 'restore')),
  bound INTEGER NOT NULL CHECK (bound >= 0)
) STRICT;

CREATE TRIGGER epochs_never_changes BEFORE UPDATE ON epochs BEGIN
  SELECT RAISE(ABORT, 'epochs: rows never change');
END;

CREATE TRIGGER epochs_never_deleted BEFORE DELETE ON epochs BEGIN
  SELECT RAISE(ABORT, 'epochs: rows are never deleted');
END;

CREATE TRIGGER epochs_never_replaced BEFORE INSERT ON epochs BEGIN
  SELECT RAISE(ABORT, 'epochs: exists')
   WHERE EXISTS (SELECT 1 FROM epochs WHERE n = NEW.n);
  SELECT RAISE(ABORT, 'epochs: exists')
   WHERE EXISTS (SELECT 1 FROM epochs WHERE epoch = NEW.epoch);
END;

CREATE TABLE sources (
  n         INTEGER PRIMARY KEY CHECK (n > 0),
  digest    TEXT NOT NULL UNIQUE CHECK (length(digest) = 64 AND digest NOT GLOB '*[^0-9a-f]*'),
  source    BLOB NOT NULL,
  canonical BLOB NOT NULL
) STRICT;

CREATE TRIGGER sources_never_changes BEFORE UPDATE ON sources BEGIN
  SELECT RAISE(ABORT, 'sources: rows never change');
END;

CREATE TRIGGER sources_never_deleted BEFORE DELETE ON sources BEGIN
  SELECT RAISE(ABORT, 'sources: rows are never deleted');
END;

CREATE TRIGGER sources_never_replaced BEFORE INSERT ON sources BEGIN
  SELECT RAISE(ABORT, 'sources: exists')
   WHERE EXISTS (SELECT 1 FROM sources WHERE n = NEW.n);
  SELECT RAISE(ABORT, 'sources: exists')
   WHERE EXISTS (SELECT 1 FROM sources WHERE digest = NEW.digest);
END;

CREATE TABLE requests (
  n            INTEGER PRIMARY KEY CHECK (n > 0),
  request      TEXT NOT NULL UNIQUE CHECK (request GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'),
  execution    TEXT NOT NULL CHECK (execution GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'),
  target       TEXT NOT NULL CHECK (length(target) BETWEEN 1 AND 255),
  instance     TEXT NOT NULL CHECK (instance GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'),
  profile      TEXT NOT NULL CHECK (profile IN ('custom', 'configure', 'production', 'resize')),
  digest       TEXT NOT NULL CHECK (length(digest) = 64 AND digest NOT GLOB '*[^0-9a-f]*'),
  revision     INTEGER NOT NULL,
  previous     TEXT CHECK (previous IS NULL OR previous GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'),
  again        INTEGER NOT NULL CHECK (again IN (0, 1)),
  requester    TEXT NOT NULL CHECK (length(requester) <= 255),
  accept_until INTEGER,
  declared     INTEGER NOT NULL CHECK (declared >= 0),
  accepted_at  INTEGER NOT NULL,
  from_ledger  INTEGER NOT NULL DEFAULT 0 CHECK (from_ledger IN (0, 1)),
  CHECK (from_ledger = 0 OR (execution = request AND declared = 0 AND previous IS NULL AND again = 0))
) STRICT;

CREATE TRIGGER requests_never_changes BEFORE UPDATE ON requests BEGIN
  SELECT RAISE(ABORT, 'requests: rows never change');
END;

CREATE TRIGGER requests_never_deleted BEFORE DELETE ON requests BEGIN
  SELECT RAISE(ABORT, 'requests: rows are never deleted');
END;

CREATE TRIGGER requests_never_replaced BEFORE INSERT ON requests BEGIN
  SELECT RAISE(ABORT, 'requests: exists')
   WHERE EXISTS (SELECT 1 FROM requests WHERE n = NEW.n);
  SELECT RAISE(ABORT, 'requests: exists')
   WHERE EXISTS (SELECT 1 FROM requests WHERE request = NEW.request);
END;

CREATE TRIGGER requests_source BEFORE INSERT ON requests WHEN NEW.from_ledger = 0 BEGIN
  SELECT RAISE(ABORT, 'requests: no such source')
   WHERE NOT EXISTS (SELECT 1 FROM sources WHERE digest = NEW.digest);
END;

CREATE TRIGGER requests_alias BEFORE INSERT ON requests WHEN NEW.execution <> NEW.request BEGIN
  SELECT RAISE(ABORT, 'requests: bound to no receipt of the same key')
   WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE request = NEW.execution AND target = NEW.target
     AND instance = NEW.instance AND profile = NEW.profile AND digest = NEW.digest);
END;

CREATE TRIGGER requests_receipt AFTER INSERT ON requests WHEN NEW.execution = NEW.request BEGIN
  INSERT INTO receipts (request, accepted, target, instance, profile, digest, state, seq)
  VALUES (NEW.request, NEW.n, NEW.target, NEW.instance, NEW.profile, NEW.digest, 'queued', 0);
END;

CREATE TABLE receipts (
  request  TEXT PRIMARY KEY REFERENCES requests (request),
  accepted INTEGER NOT NULL UNIQUE REFERENCES requests (n),
  target   TEXT NOT NULL,
  instance TEXT NOT NULL,
  profile  TEXT NOT NULL,
  digest   TEXT NOT NULL,
  state    TEXT NOT NULL CHECK (state IN ('queued', 'refused', 'dispatching', 'dispatched', 'succeeded', 'failed', 'uncertain')),
  seq      INTEGER NOT NULL CHECK (seq >= 0),
  jid      TEXT CHECK (jid IS NULL OR jid GLOB '[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]'),
  last     INTEGER REFERENCES transitions (n),
  CHECK ((seq = 0) = (last IS NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX receipts_busy ON receipts (target) WHERE state IN ('dispatching', 'dispatched');

CREATE UNIQUE INDEX receipts_open ON receipts (target, instance, profile, digest) WHERE state IN ('queued', 'dispatching', 'dispatched');

CREATE UNIQUE INDEX receipts_jid ON receipts (jid);

CREATE INDEX receipts_confirmed ON receipts (target, instance, profile, digest, last) WHERE state IN ('refused', 'succeeded', 'failed');

CREATE INDEX receipts_uncertain ON receipts (target, last) WHERE state = 'uncertain';

CREATE INDEX receipts_unresolved ON receipts (state, accepted) WHERE state IN ('queued', 'dispatching', 'dispatched', 'uncertain');

CREATE INDEX receipts_target ON receipts (target, accepted);

CREATE TRIGGER receipts_never_deleted BEFORE DELETE ON receipts BEGIN
  SELECT RAISE(ABORT, 'receipts: rows are never deleted');
END;

CREATE TRIGGER receipts_made_by_requests BEFORE INSERT ON receipts BEGIN
  SELECT RAISE(ABORT, 'receipts: exists')
   WHERE EXISTS (SELECT 1 FROM receipts WHERE request = NEW.request);
  SELECT RAISE(ABORT, 'receipts: another receipt of the same key is open')
   WHERE EXISTS (SELECT 1 FROM receipts WHERE target = NEW.target AND instance = NEW.instance
     AND profile = NEW.profile AND digest = NEW.digest AND state IN ('queued', 'dispatching', 'dispatched'));
  SELECT RAISE(ABORT, 'receipts: not made by its request')
   WHERE NEW.state <> 'queued' OR NEW.seq <> 0 OR NEW.jid IS NOT NULL OR NEW.last IS NOT NULL
      OR NOT EXISTS (SELECT 1 FROM requests WHERE request = NEW.request AND execution = NEW.request
        AND n = NEW.accepted AND target = NEW.target AND instance = NEW.instance
        AND profile = NEW.profile AND digest = NEW.digest);
END;

CREATE TRIGGER receipts_moved_by_transitions BEFORE UPDATE ON receipts BEGIN
  SELECT RAISE(ABORT, 'receipts: a frozen column')
   WHERE NEW.request IS NOT OLD.request OR NEW.accepted IS NOT OLD.accepted OR NEW.target IS NOT OLD.target
      OR NEW.instance IS NOT OLD.instance OR NEW.profile IS NOT OLD.profile OR NEW.digest IS NOT OLD.digest;
  SELECT RAISE(ABORT, 'receipts: not moved by a transition')
   WHERE NOT EXISTS (SELECT 1 FROM transitions WHERE n = NEW.last AND request = OLD.request
     AND seq = OLD.seq + 1 AND seq = NEW.seq AND from_state = OLD.state AND to_state = NEW.state
     AND jid IS NEW.jid);
END;

CREATE TABLE allowed_transitions (
  event      TEXT NOT NULL,
  from_state TEXT NOT NULL CHECK (from_state IN ('queued', 'refused', 'dispatching', 'dispatched', 'succeeded', 'failed', 'uncertain')),
  to_state   TEXT NOT NULL CHECK (to_state IN ('queued', 'refused', 'dispatching', 'dispatched', 'succeeded', 'failed', 'uncertain')),
  PRIMARY KEY (event, from_state, to_state)
) STRICT, WITHOUT ROWID;

INSERT INTO allowed_transitions (event, from_state, to_state) VALUES
  ('refuse', 'queued', 'refused'),
  ('adopt', 'queued', 'dispatched'),
  ('adopt', 'queued', 'succeeded'),
  ('adopt', 'queued', 'failed'),
  ('adopt', 'queued', 'uncertain'),
  ('claim', 'queued', 'dispatching'),
  ('acknowledge', 'dispatching', 'dispatched'),
  ('not_sent', 'dispatching', 'failed'),
  ('finish', 'dispatching', 'succeeded'),
  ('finish', 'dispatching', 'failed'),
  ('finish', 'dispatched', 'succeeded'),
  ('finish', 'dispatched', 'failed'),
  ('finish', 'uncertain', 'succeeded'),
  ('finish', 'uncertain', 'failed'),
  ('lose', 'dispatching', 'uncertain'),
  ('lose', 'dispatched', 'uncertain'),
  ('settle', 'uncertain', 'succeeded'),
  ('settle', 'uncertain', 'failed');

CREATE TRIGGER allowed_transitions_complete BEFORE INSERT ON allowed_transitions BEGIN
  SELECT RAISE(ABORT, 'allowed_transitions: complete');
END;

CREATE TRIGGER allowed_transitions_never_changes BEFORE UPDATE ON allowed_transitions BEGIN
  SELECT RAISE(ABORT, 'allowed_transitions: rows never change');
END;

CREATE TRIGGER allowed_transitions_never_deleted BEFORE DELETE ON allowed_transitions BEGIN
  SELECT RAISE(ABORT, 'allowed_transitions: rows are never deleted');
END;

CREATE TABLE transitions (
  n               INTEGER PRIMARY KEY CHECK (n > 0),
  request         TEXT NOT NULL REFERENCES receipts (request),
  seq             INTEGER NOT NULL CHECK (seq > 0),
  event           TEXT NOT NULL,
  from_state      TEXT NOT NULL,
  to_state        TEXT NOT NULL,
  at              INTEGER NOT NULL,
  actor           TEXT NOT NULL CHECK (length(actor) BETWEEN 1 AND 255),
  code            TEXT CHECK (code IS NULL OR length(code) BETWEEN 1 AND 64 AND code NOT GLOB '*[^a-z_]*'),
  detail          TEXT CHECK (detail IS NULL OR length(detail) BETWEEN 1 AND 64 AND detail NOT GLOB '*[^a-z_]*'),
  jid             TEXT CHECK (jid IS NULL OR jid GLOB '[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]'),
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
  blocker         TEXT CHECK (blocker IS NULL OR blocker GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'),
  blocker_profile TEXT,
  blocker_since   INTEGER,
  settled         INTEGER NOT NULL CHECK (settled IN (0, 1)),
  UNIQUE (request, seq),
  FOREIGN KEY (event, from_state, to_state) REFERENCES allowed_transitions (event, from_state, to_state),
  CHECK (passed + failed + not_run <= declared),
  CHECK ((finished_at IS NOT NULL) = (to_state IN ('refused', 'succeeded', 'failed'))),
  CHECK ((code IS NOT NULL) = (to_state IN ('refused', 'failed', 'uncertain'))),
  CHECK ((to_state = 'refused') = (checks_passed = 0)),
  CHECK (to_state <> 'dispatching' OR (jid IS NOT NULL AND ticket IS NOT NULL AND dispatched_at IS NOT NULL)),
  CHECK (to_state <> 'succeeded' OR settled = 1 OR passed = declared),
  CHECK (finished_at IS NULL OR settled = 1 OR passed + failed + not_run = declared),
  CHECK (settled = (event = 'settle'))
) STRICT;

CREATE TRIGGER transitions_never_changes BEFORE UPDATE ON transitions BEGIN
  SELECT RAISE(ABORT, 'transitions: rows never change');
END;

CREATE TRIGGER transitions_never_deleted BEFORE DELETE ON transitions BEGIN
  SELECT RAISE(ABORT, 'transitions: rows are never deleted');
END;

CREATE TRIGGER transitions_never_replaced BEFORE INSERT ON transitions BEGIN
  SELECT RAISE(ABORT, 'transitions: exists')
   WHERE EXISTS (SELECT 1 FROM transitions WHERE n = NEW.n);
  SELECT RAISE(ABORT, 'transitions: exists')
   WHERE EXISTS (SELECT 1 FROM transitions WHERE request = NEW.request AND seq = NEW.seq);
END;

CREATE TRIGGER transitions_fit BEFORE INSERT ON transitions BEGIN
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
   WHERE NEW.to_state IN ('dispatching', 'dispatched')
     AND EXISTS (SELECT 1 FROM receipts WHERE target = (SELECT target FROM receipts WHERE request = NEW.request)
       AND state IN ('dispatching', 'dispatched') AND request <> NEW.request);
END;

CREATE TRIGGER transitions_move AFTER INSERT ON transitions BEGIN
  UPDATE receipts SET state = NEW.to_state, seq = NEW.seq, jid = NEW.jid, last = NEW.n
   WHERE request = NEW.request;
END;

CREATE TABLE settlements (
  n           INTEGER PRIMARY KEY CHECK (n > 0),
  request     TEXT NOT NULL UNIQUE REFERENCES receipts (request),
  outcome     TEXT NOT NULL CHECK (outcome IN ('succeeded', 'failed')),
  reason      TEXT NOT NULL CHECK (length(reason) BETWEEN 1 AND 4096),
  observed    TEXT NOT NULL CHECK (length(observed) BETWEEN 1 AND 65536),
  server_gone INTEGER NOT NULL CHECK (server_gone IN (0, 1)),
  by          TEXT NOT NULL CHECK (length(by) BETWEEN 1 AND 255),
  at          INTEGER NOT NULL
) STRICT;

CREATE TRIGGER settlements_never_changes BEFORE UPDATE ON settlements BEGIN
  SELECT RAISE(ABORT, 'settlements: rows never change');
END;

CREATE TRIGGER settlements_never_deleted BEFORE DELETE ON settlements BEGIN
  SELECT RAISE(ABORT, 'settlements: rows are never deleted');
END;

CREATE TRIGGER settlements_never_replaced BEFORE INSERT ON settlements BEGIN
  SELECT RAISE(ABORT, 'settlements: exists')
   WHERE EXISTS (SELECT 1 FROM settlements WHERE n = NEW.n);
  SELECT RAISE(ABORT, 'settlements: exists')
   WHERE EXISTS (SELECT 1 FROM settlements WHERE request = NEW.request);
END;

CREATE TRIGGER settlements_fit BEFORE INSERT ON settlements BEGIN
  SELECT RAISE(ABORT, 'settlements: not of an uncertain receipt')
   WHERE NOT EXISTS (SELECT 1 FROM receipts WHERE request = NEW.request AND state = 'uncertain');
END;

CREATE TABLE deliveries (
  n       INTEGER PRIMARY KEY CHECK (n > 0),
  request TEXT NOT NULL UNIQUE REFERENCES settlements (request),
  at      INTEGER NOT NULL
) STRICT;

CREATE TRIGGER deliveries_never_changes BEFORE UPDATE ON deliveries BEGIN
  SELECT RAISE(ABORT, 'deliveries: rows never change');
END;

CREATE TRIGGER deliveries_never_deleted BEFORE DELETE ON deliveries BEGIN
  SELECT RAISE(ABORT, 'deliveries: rows are never deleted');
END;

CREATE TRIGGER deliveries_never_replaced BEFORE INSERT ON deliveries BEGIN
  SELECT RAISE(ABORT, 'deliveries: exists')
   WHERE EXISTS (SELECT 1 FROM deliveries WHERE n = NEW.n);
  SELECT RAISE(ABORT, 'deliveries: exists')
   WHERE EXISTS (SELECT 1 FROM deliveries WHERE request = NEW.request);
END;

CREATE TABLE adoptions (
  n           INTEGER PRIMARY KEY CHECK (n > 0),
  target      TEXT NOT NULL CHECK (length(target) BETWEEN 1 AND 255),
  instance    TEXT NOT NULL CHECK (instance GLOB '[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f]-[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'),
  fingerprint TEXT NOT NULL,
  ledger      TEXT NOT NULL,
  machine     TEXT NOT NULL,
  at          INTEGER NOT NULL,
  by          TEXT NOT NULL CHECK (length(by) BETWEEN 1 AND 255),
  reason      TEXT NOT NULL CHECK (length(reason) <= 4096)
) STRICT;

CREATE INDEX adoptions_target ON adoptions (target, n);

CREATE TRIGGER adoptions_never_changes BEFORE UPDATE ON adoptions BEGIN
  SELECT RAISE(ABORT, 'adoptions: rows never change');
END;

CREATE TRIGGER adoptions_never_deleted BEFORE DELETE ON adoptions BEGIN
  SELECT RAISE(ABORT, 'adoptions: rows are never deleted');
END;

CREATE TRIGGER adoptions_never_replaced BEFORE INSERT ON adoptions BEGIN
  SELECT RAISE(ABORT, 'adoptions: exists')
   WHERE EXISTS (SELECT 1 FROM adoptions WHERE n = NEW.n);
END;

CREATE TABLE witnesses (
  n         INTEGER PRIMARY KEY CHECK (n > 0),
  request   TEXT NOT NULL REFERENCES receipts (request),
  at        INTEGER NOT NULL,
  kind      TEXT NOT NULL CHECK (length(kind) BETWEEN 1 AND 32 AND kind NOT GLOB '*[^a-z_]*'),
  result    TEXT NOT NULL CHECK (length(result) BETWEEN 1 AND 32 AND result NOT GLOB '*[^a-z_]*'),
  code      TEXT CHECK (code IS NULL OR length(code) BETWEEN 1 AND 64 AND code NOT GLOB '*[^a-z_]*'),
  declared  INTEGER,
  passed    INTEGER,
  failed    INTEGER,
  not_run   INTEGER,
  ledger    TEXT CHECK (ledger IS NULL OR length(ledger) BETWEEN 1 AND 128),
  conflict  INTEGER NOT NULL CHECK (conflict IN (0, 1))
) STRICT;

CREATE INDEX witnesses_request ON witnesses (request, n);

CREATE INDEX witnesses_conflict ON witnesses (request) WHERE conflict = 1;

CREATE INDEX witnesses_duplicate ON witnesses (request, at) WHERE code = 'duplicate_target';

CREATE TRIGGER witnesses_never_changes BEFORE UPDATE ON witnesses BEGIN
  SELECT RAISE(ABORT, 'witnesses: rows never change');
END;

CREATE TRIGGER witnesses_never_deleted BEFORE DELETE ON witnesses BEGIN
  SELECT RAISE(ABORT, 'witnesses: rows are never deleted');
END;

CREATE TRIGGER witnesses_never_replaced BEFORE INSERT ON witnesses BEGIN
  SELECT RAISE(ABORT, 'witnesses: exists')
   WHERE EXISTS (SELECT 1 FROM witnesses WHERE n = NEW.n);
END;

CREATE TABLE tokens (
  id         TEXT PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 64),
  hash       BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  scope      TEXT NOT NULL CHECK (length(scope) BETWEEN 1 AND 64),
  name       TEXT NOT NULL CHECK (length(name) <= 255),
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL CHECK (length(created_by) <= 255)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER tokens_never_changes BEFORE UPDATE ON tokens BEGIN
  SELECT RAISE(ABORT, 'tokens: rows never change');
END;

CREATE TRIGGER tokens_never_deleted BEFORE DELETE ON tokens BEGIN
  SELECT RAISE(ABORT, 'tokens: rows are never deleted');
END;

CREATE TRIGGER tokens_never_replaced BEFORE INSERT ON tokens BEGIN
  SELECT RAISE(ABORT, 'tokens: exists')
   WHERE EXISTS (SELECT 1 FROM tokens WHERE id = NEW.id);
  SELECT RAISE(ABORT, 'tokens: exists')
   WHERE EXISTS (SELECT 1 FROM tokens WHERE hash = NEW.hash);
END;

CREATE TABLE revocations (
  id TEXT PRIMARY KEY REFERENCES tokens (id),
  at INTEGER NOT NULL,
  by TEXT NOT NULL CHECK (length(by) <= 255)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER revocations_never_changes BEFORE UPDATE ON revocations BEGIN
  SELECT RAISE(ABORT, 'revocations: rows never change');
END;

CREATE TRIGGER revocations_never_deleted BEFORE DELETE ON revocations BEGIN
  SELECT RAISE(ABORT, 'revocations: rows are never deleted');
END;

CREATE TRIGGER revocations_never_replaced BEFORE INSERT ON revocations BEGIN
  SELECT RAISE(ABORT, 'revocations: exists')
   WHERE EXISTS (SELECT 1 FROM revocations WHERE id = NEW.id);
END;
