-- A database of schema version 1 with rows in every table, as a masterd of
-- 2026-11-30 (commit a3a5080) made it. It never changes.
BEGIN TRANSACTION;
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
INSERT INTO "adoptions" VALUES(1,'done','00000002-0000-4000-8000-000000a4c3ed','SHA256:done','ledger-done','machine-done',1796036400000000,'root','was configured before');
INSERT INTO "adoptions" VALUES(2,'failed','00000002-0000-4000-8000-0000005d28a9','SHA256:failed','ledger-failed','machine-failed',1796036400000000,'root','was configured before');
INSERT INTO "adoptions" VALUES(3,'refused','00000002-0000-4000-8000-00000083c874','SHA256:refused','ledger-refused','machine-refused',1796036400000000,'root','was configured before');
INSERT INTO "adoptions" VALUES(4,'settled','00000002-0000-4000-8000-000000d31e01','SHA256:settled','ledger-settled','machine-settled',1796036400000000,'root','was configured before');
INSERT INTO "adoptions" VALUES(5,'lost','00000002-0000-4000-8000-00000076f75e','SHA256:lost','ledger-lost','machine-lost',1796036400000000,'root','was configured before');
INSERT INTO "adoptions" VALUES(6,'waiting','00000002-0000-4000-8000-00000080cfa3','SHA256:waiting','ledger-waiting','machine-waiting',1796036400000000,'root','was configured before');
INSERT INTO "adoptions" VALUES(7,'busy','00000002-0000-4000-8000-000000c9bc07','SHA256:busy','ledger-busy','machine-busy',1796036400000000,'root','was configured before');
INSERT INTO "adoptions" VALUES(8,'busy','00000002-0000-4000-8000-000000c9bc07','SHA256:busy','ledger-busy','machine-busy',1796036400000000,'root','was configured before');
INSERT INTO "adoptions" VALUES(9,'acknowledged','00000002-0000-4000-8000-0000003ef25c','SHA256:acknowledged','ledger-acknowledged','machine-acknowledged',1796036400000000,'root','was configured before');
INSERT INTO "adoptions" VALUES(10,'settled too','00000002-0000-4000-8000-000000d16d70','SHA256:settled too','ledger-settled too','machine-settled too',1796036400000000,'root','was configured before');
CREATE TABLE allowed_transitions (
  event      TEXT NOT NULL,
  from_state TEXT NOT NULL CHECK (from_state IN ('queued', 'refused', 'dispatching', 'dispatched', 'succeeded', 'failed', 'uncertain')),
  to_state   TEXT NOT NULL CHECK (to_state IN ('queued', 'refused', 'dispatching', 'dispatched', 'succeeded', 'failed', 'uncertain')),
  PRIMARY KEY (event, from_state, to_state)
) STRICT, WITHOUT ROWID;
INSERT INTO "allowed_transitions" VALUES('acknowledge','dispatching','dispatched');
INSERT INTO "allowed_transitions" VALUES('adopt','queued','dispatched');
INSERT INTO "allowed_transitions" VALUES('adopt','queued','failed');
INSERT INTO "allowed_transitions" VALUES('adopt','queued','succeeded');
INSERT INTO "allowed_transitions" VALUES('adopt','queued','uncertain');
INSERT INTO "allowed_transitions" VALUES('claim','queued','dispatching');
INSERT INTO "allowed_transitions" VALUES('finish','dispatched','failed');
INSERT INTO "allowed_transitions" VALUES('finish','dispatched','succeeded');
INSERT INTO "allowed_transitions" VALUES('finish','dispatching','failed');
INSERT INTO "allowed_transitions" VALUES('finish','dispatching','succeeded');
INSERT INTO "allowed_transitions" VALUES('finish','uncertain','failed');
INSERT INTO "allowed_transitions" VALUES('finish','uncertain','succeeded');
INSERT INTO "allowed_transitions" VALUES('lose','dispatched','uncertain');
INSERT INTO "allowed_transitions" VALUES('lose','dispatching','uncertain');
INSERT INTO "allowed_transitions" VALUES('not_sent','dispatching','failed');
INSERT INTO "allowed_transitions" VALUES('refuse','queued','refused');
INSERT INTO "allowed_transitions" VALUES('settle','uncertain','failed');
INSERT INTO "allowed_transitions" VALUES('settle','uncertain','succeeded');
CREATE TABLE deliveries (
  n       INTEGER PRIMARY KEY CHECK (n > 0),
  request TEXT NOT NULL UNIQUE REFERENCES settlements (request),
  at      INTEGER NOT NULL
) STRICT;
INSERT INTO "deliveries" VALUES(1,'00000001-0000-4000-8000-000000000004',1796040000000000);
INSERT INTO "deliveries" VALUES(2,'00000001-0000-4000-8000-00000000000a',1796040000000000);
CREATE TABLE epochs (
  n     INTEGER PRIMARY KEY CHECK (n > 0),
  epoch TEXT NOT NULL UNIQUE CHECK (length(epoch) = 32 AND epoch NOT GLOB '*[^0-9a-f]*'),
  at    INTEGER NOT NULL,
  cause TEXT NOT NULL CHECK (cause IN ('init', 'restore')),
  bound INTEGER NOT NULL CHECK (bound >= 0)
) STRICT;
INSERT INTO "epochs" VALUES(1,'07010309070103090701030907010309',1796040000000000,'init',0);
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
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-000000000001',1,'done','00000002-0000-4000-8000-000000a4c3ed','custom','08034414b2adceaf58484101b8c1855771534150ce42019d2ff18843ad991bca','succeeded',2,'20261130120000000000',2);
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-000000000002',2,'failed','00000002-0000-4000-8000-0000005d28a9','custom','7e0adb4ac5ac4a7ce5ef9e9152c631e3ef9d3529e17c6f542d899165629b713d','failed',2,'20261130120000000002',4);
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-000000000003',3,'refused','00000002-0000-4000-8000-00000083c874','custom','97396f6de862d9520b5de35e4566a4e2a7872d909f95e3b0eeb0eddafe9cb097','refused',1,NULL,5);
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-000000000004',4,'settled','00000002-0000-4000-8000-000000d31e01','custom','136b95b4e06bbdd81ffc465251f6f9d0ffa9ea10e18b76636291b9ecfa8ee72d','failed',3,'20261130120000000004',8);
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-000000000005',5,'lost','00000002-0000-4000-8000-00000076f75e','custom','af1fcb474282d5c0d9561c718bd11b6a9e13f6284806ae6619e407dd1be773bf','uncertain',2,'20261130120000000006',10);
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-000000000006',6,'waiting','00000002-0000-4000-8000-00000080cfa3','custom','f6edeacb2a152e083ada2fe1dcc65f053ee146dc8b58684d59be301e91443a84','queued',0,NULL,NULL);
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-000000000007',7,'busy','00000002-0000-4000-8000-000000c9bc07','custom','2d35e6bfaa789a77cd6436941f6d8ce56c80e2e0851bd78f7527ffc386543037','dispatching',1,'20261130120000000008',11);
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-000000000008',8,'busy','00000002-0000-4000-8000-000000c9bc07','custom','64cf662ad32f86290460b31c6ce2aa9096e0b467a9fdff6a12d0b33dcb336c86','queued',0,NULL,NULL);
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-000000000009',9,'acknowledged','00000002-0000-4000-8000-0000003ef25c','custom','b37e4d22e416f99dbca82ab2b100970f7a508c8b8b04098407328aba93d2c2b3','dispatched',2,'20261130120000000010',13);
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-00000000000a',11,'settled too','00000002-0000-4000-8000-000000d16d70','custom','da2c638d137ff9f1199009c4df9640642e0c9468c26e66746cde6ebebda97e6b','failed',3,'20261130120000000012',16);
INSERT INTO "receipts" VALUES('00000001-0000-4000-8000-0000000000c8',12,'old','00000002-0000-4000-8000-000000cba06b','custom','2d35e6bfaa789a77cd6436941f6d8ce56c80e2e0851bd78f7527ffc386543037','uncertain',1,NULL,17);
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
INSERT INTO "requests" VALUES(1,'00000001-0000-4000-8000-000000000001','00000001-0000-4000-8000-000000000001','done','00000002-0000-4000-8000-000000a4c3ed','custom','08034414b2adceaf58484101b8c1855771534150ce42019d2ff18843ad991bca',1,NULL,0,'tests',NULL,3,1796040000001000,0);
INSERT INTO "requests" VALUES(2,'00000001-0000-4000-8000-000000000002','00000001-0000-4000-8000-000000000002','failed','00000002-0000-4000-8000-0000005d28a9','custom','7e0adb4ac5ac4a7ce5ef9e9152c631e3ef9d3529e17c6f542d899165629b713d',1,NULL,0,'tests',NULL,3,1796040000002000,0);
INSERT INTO "requests" VALUES(3,'00000001-0000-4000-8000-000000000003','00000001-0000-4000-8000-000000000003','refused','00000002-0000-4000-8000-00000083c874','custom','97396f6de862d9520b5de35e4566a4e2a7872d909f95e3b0eeb0eddafe9cb097',1,NULL,0,'tests',NULL,3,1796040000003000,0);
INSERT INTO "requests" VALUES(4,'00000001-0000-4000-8000-000000000004','00000001-0000-4000-8000-000000000004','settled','00000002-0000-4000-8000-000000d31e01','custom','136b95b4e06bbdd81ffc465251f6f9d0ffa9ea10e18b76636291b9ecfa8ee72d',1,NULL,0,'tests',NULL,3,1796040000004000,0);
INSERT INTO "requests" VALUES(5,'00000001-0000-4000-8000-000000000005','00000001-0000-4000-8000-000000000005','lost','00000002-0000-4000-8000-00000076f75e','custom','af1fcb474282d5c0d9561c718bd11b6a9e13f6284806ae6619e407dd1be773bf',1,NULL,0,'tests',NULL,3,1796040000005000,0);
INSERT INTO "requests" VALUES(6,'00000001-0000-4000-8000-000000000006','00000001-0000-4000-8000-000000000006','waiting','00000002-0000-4000-8000-00000080cfa3','custom','f6edeacb2a152e083ada2fe1dcc65f053ee146dc8b58684d59be301e91443a84',1,NULL,0,'tests',NULL,3,1796040000006000,0);
INSERT INTO "requests" VALUES(7,'00000001-0000-4000-8000-000000000007','00000001-0000-4000-8000-000000000007','busy','00000002-0000-4000-8000-000000c9bc07','custom','2d35e6bfaa789a77cd6436941f6d8ce56c80e2e0851bd78f7527ffc386543037',1,NULL,0,'tests',NULL,3,1796040000007000,0);
INSERT INTO "requests" VALUES(8,'00000001-0000-4000-8000-000000000008','00000001-0000-4000-8000-000000000008','busy','00000002-0000-4000-8000-000000c9bc07','custom','64cf662ad32f86290460b31c6ce2aa9096e0b467a9fdff6a12d0b33dcb336c86',1,NULL,0,'tests',NULL,3,1796040000008000,0);
INSERT INTO "requests" VALUES(9,'00000001-0000-4000-8000-000000000009','00000001-0000-4000-8000-000000000009','acknowledged','00000002-0000-4000-8000-0000003ef25c','custom','b37e4d22e416f99dbca82ab2b100970f7a508c8b8b04098407328aba93d2c2b3',1,NULL,0,'tests',NULL,3,1796040000009000,0);
INSERT INTO "requests" VALUES(10,'00000001-0000-4000-8000-000000000064','00000001-0000-4000-8000-000000000006','waiting','00000002-0000-4000-8000-00000080cfa3','custom','f6edeacb2a152e083ada2fe1dcc65f053ee146dc8b58684d59be301e91443a84',1,NULL,0,'tests',NULL,3,1796040000100000,0);
INSERT INTO "requests" VALUES(11,'00000001-0000-4000-8000-00000000000a','00000001-0000-4000-8000-00000000000a','settled too','00000002-0000-4000-8000-000000d16d70','custom','da2c638d137ff9f1199009c4df9640642e0c9468c26e66746cde6ebebda97e6b',1,NULL,0,'tests',NULL,3,1796040000010000,0);
INSERT INTO "requests" VALUES(12,'00000001-0000-4000-8000-0000000000c8','00000001-0000-4000-8000-0000000000c8','old','00000002-0000-4000-8000-000000cba06b','custom','2d35e6bfaa789a77cd6436941f6d8ce56c80e2e0851bd78f7527ffc386543037',0,NULL,0,'',NULL,0,1796040000000000,1);
CREATE TABLE revocations (
  id TEXT PRIMARY KEY REFERENCES tokens (id),
  at INTEGER NOT NULL,
  by TEXT NOT NULL CHECK (length(by) <= 255)
) STRICT, WITHOUT ROWID;
INSERT INTO "revocations" VALUES('aa',1796040000000000,'root');
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
INSERT INTO "settlements" VALUES(1,'00000001-0000-4000-8000-000000000004','failed','the disk was full','the package is installed',0,'uid 0',1796040000000000);
INSERT INTO "settlements" VALUES(2,'00000001-0000-4000-8000-00000000000a','failed','the disk was full','the package is installed',0,'uid 0',1796040000000000);
CREATE TABLE sources (
  n         INTEGER PRIMARY KEY CHECK (n > 0),
  digest    TEXT NOT NULL UNIQUE CHECK (length(digest) = 64 AND digest NOT GLOB '*[^0-9a-f]*'),
  source    BLOB NOT NULL,
  canonical BLOB NOT NULL
) STRICT;
INSERT INTO "sources" VALUES(1,'08034414b2adceaf58484101b8c1855771534150ce42019d2ff18843ad991bca',X'2320310A',X'7B2276223A312C2274657874223A2231227D');
INSERT INTO "sources" VALUES(2,'7e0adb4ac5ac4a7ce5ef9e9152c631e3ef9d3529e17c6f542d899165629b713d',X'2320320A',X'7B2276223A312C2274657874223A2232227D');
INSERT INTO "sources" VALUES(3,'97396f6de862d9520b5de35e4566a4e2a7872d909f95e3b0eeb0eddafe9cb097',X'2320330A',X'7B2276223A312C2274657874223A2233227D');
INSERT INTO "sources" VALUES(4,'136b95b4e06bbdd81ffc465251f6f9d0ffa9ea10e18b76636291b9ecfa8ee72d',X'2320340A',X'7B2276223A312C2274657874223A2234227D');
INSERT INTO "sources" VALUES(5,'af1fcb474282d5c0d9561c718bd11b6a9e13f6284806ae6619e407dd1be773bf',X'2320350A',X'7B2276223A312C2274657874223A2235227D');
INSERT INTO "sources" VALUES(6,'f6edeacb2a152e083ada2fe1dcc65f053ee146dc8b58684d59be301e91443a84',X'2320360A',X'7B2276223A312C2274657874223A2236227D');
INSERT INTO "sources" VALUES(7,'2d35e6bfaa789a77cd6436941f6d8ce56c80e2e0851bd78f7527ffc386543037',X'2320370A',X'7B2276223A312C2274657874223A2237227D');
INSERT INTO "sources" VALUES(8,'64cf662ad32f86290460b31c6ce2aa9096e0b467a9fdff6a12d0b33dcb336c86',X'2320380A',X'7B2276223A312C2274657874223A2238227D');
INSERT INTO "sources" VALUES(9,'b37e4d22e416f99dbca82ab2b100970f7a508c8b8b04098407328aba93d2c2b3',X'2320390A',X'7B2276223A312C2274657874223A2239227D');
INSERT INTO "sources" VALUES(10,'da2c638d137ff9f1199009c4df9640642e0c9468c26e66746cde6ebebda97e6b',X'232031300A',X'7B2276223A312C2274657874223A223130227D');
CREATE TABLE tokens (
  id         TEXT PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 64),
  hash       BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  scope      TEXT NOT NULL CHECK (length(scope) BETWEEN 1 AND 64),
  name       TEXT NOT NULL CHECK (length(name) <= 255),
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL CHECK (length(created_by) <= 255)
) STRICT, WITHOUT ROWID;
INSERT INTO "tokens" VALUES('aa',X'0100000000000000000000000000000000000000000000000000000000000000','custom','',1796040000000000,'');
INSERT INTO "tokens" VALUES('bb',X'0200000000000000000000000000000000000000000000000000000000000000','custom','',1796040000000000,'');
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
INSERT INTO "transitions" VALUES(1,'00000001-0000-4000-8000-000000000001',1,'claim','queued','dispatching',1796040000000000,'masterd',NULL,NULL,'20261130120000000000','0123456789abcdef0123456789abcdef','SHA256:done','ledger-done',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(2,'00000001-0000-4000-8000-000000000001',2,'finish','dispatching','succeeded',1796040000000000,'masterd',NULL,NULL,'20261130120000000000','0123456789abcdef0123456789abcdef','SHA256:done','ledger-done',1796040000000000,1796040000000000,1796040000000000,3,3,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(3,'00000001-0000-4000-8000-000000000002',1,'claim','queued','dispatching',1796040000000000,'masterd',NULL,NULL,'20261130120000000002','0123456789abcdef0123456789abcdef','SHA256:failed','ledger-failed',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(4,'00000001-0000-4000-8000-000000000002',2,'finish','dispatching','failed',1796040000000000,'masterd','state_failed',NULL,'20261130120000000002','0123456789abcdef0123456789abcdef','SHA256:failed','ledger-failed',1796040000000000,1796040000000000,1796040000000000,3,1,2,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(5,'00000001-0000-4000-8000-000000000003',1,'refuse','queued','refused',1796040000000000,'masterd','executor_silent',NULL,NULL,NULL,NULL,NULL,NULL,NULL,1796040000000000,3,0,0,3,0,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(6,'00000001-0000-4000-8000-000000000004',1,'claim','queued','dispatching',1796040000000000,'masterd',NULL,NULL,'20261130120000000004','0123456789abcdef0123456789abcdef','SHA256:settled','ledger-settled',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(7,'00000001-0000-4000-8000-000000000004',2,'lose','dispatching','uncertain',1796040000000000,'masterd','no_answer',NULL,'20261130120000000004','0123456789abcdef0123456789abcdef','SHA256:settled','ledger-settled',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(8,'00000001-0000-4000-8000-000000000004',3,'settle','uncertain','failed',1796040000000000,'uid 0','settled_failed',NULL,'20261130120000000004','0123456789abcdef0123456789abcdef','SHA256:settled','ledger-settled',1796040000000000,1796040000000000,1796040000000000,3,0,0,0,1,1,NULL,NULL,NULL,1);
INSERT INTO "transitions" VALUES(9,'00000001-0000-4000-8000-000000000005',1,'claim','queued','dispatching',1796040000000000,'masterd',NULL,NULL,'20261130120000000006','0123456789abcdef0123456789abcdef','SHA256:lost','ledger-lost',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(10,'00000001-0000-4000-8000-000000000005',2,'lose','dispatching','uncertain',1796040000000000,'masterd','no_answer',NULL,'20261130120000000006','0123456789abcdef0123456789abcdef','SHA256:lost','ledger-lost',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(11,'00000001-0000-4000-8000-000000000007',1,'claim','queued','dispatching',1796040000000000,'masterd',NULL,NULL,'20261130120000000008','0123456789abcdef0123456789abcdef','SHA256:busy','ledger-busy',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(12,'00000001-0000-4000-8000-000000000009',1,'claim','queued','dispatching',1796040000000000,'masterd',NULL,NULL,'20261130120000000010','0123456789abcdef0123456789abcdef','SHA256:acknowledged','ledger-acknowledged',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(13,'00000001-0000-4000-8000-000000000009',2,'acknowledge','dispatching','dispatched',1796040000000000,'masterd',NULL,NULL,'20261130120000000010','0123456789abcdef0123456789abcdef','SHA256:acknowledged','ledger-acknowledged',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(14,'00000001-0000-4000-8000-00000000000a',1,'claim','queued','dispatching',1796040000000000,'masterd',NULL,NULL,'20261130120000000012','0123456789abcdef0123456789abcdef','SHA256:settled too','ledger-settled too',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(15,'00000001-0000-4000-8000-00000000000a',2,'lose','dispatching','uncertain',1796040000000000,'masterd','no_answer',NULL,'20261130120000000012','0123456789abcdef0123456789abcdef','SHA256:settled too','ledger-settled too',1796040000000000,1796040000000000,NULL,3,0,0,0,1,1,NULL,NULL,NULL,0);
INSERT INTO "transitions" VALUES(16,'00000001-0000-4000-8000-00000000000a',3,'settle','uncertain','failed',1796040000000000,'uid 0','settled_failed',NULL,'20261130120000000012','0123456789abcdef0123456789abcdef','SHA256:settled too','ledger-settled too',1796040000000000,1796040000000000,1796040000000000,3,0,0,0,1,1,NULL,NULL,NULL,1);
INSERT INTO "transitions" VALUES(17,'00000001-0000-4000-8000-0000000000c8',1,'adopt','queued','uncertain',1796040000000000,'masterd','interrupted',NULL,NULL,NULL,NULL,'ledger-old',NULL,1796040000000000,NULL,0,0,0,0,1,1,NULL,NULL,NULL,0);
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
INSERT INTO "witnesses" VALUES(1,'00000001-0000-4000-8000-000000000005',1796040000000000,'evidence','absent',NULL,NULL,NULL,NULL,NULL,'l',0);
INSERT INTO "witnesses" VALUES(2,'00000001-0000-4000-8000-000000000005',1796040000000000,'evidence','absent','x',NULL,NULL,NULL,NULL,NULL,0);
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
CREATE TRIGGER allowed_transitions_complete BEFORE INSERT ON allowed_transitions BEGIN
  SELECT RAISE(ABORT, 'allowed_transitions: complete');
END;
CREATE TRIGGER allowed_transitions_never_changes BEFORE UPDATE ON allowed_transitions BEGIN
  SELECT RAISE(ABORT, 'allowed_transitions: rows never change');
END;
CREATE TRIGGER allowed_transitions_never_deleted BEFORE DELETE ON allowed_transitions BEGIN
  SELECT RAISE(ABORT, 'allowed_transitions: rows are never deleted');
END;
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
COMMIT;
