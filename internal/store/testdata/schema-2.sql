-- What the ledgers tell of their generations (docs/design.md, "A ledger that is
-- put back"). An adoption stands for the target and the ledger that it recorded:
-- another one begins anew.

-- The highest generation that a ledger has told since it was adopted.
CREATE TABLE generations (
  adoption   INTEGER PRIMARY KEY REFERENCES adoptions (n),
  generation INTEGER NOT NULL CHECK (generation > 0)
) STRICT;

CREATE TRIGGER generations_only_grow BEFORE UPDATE ON generations BEGIN
  SELECT RAISE(ABORT, 'generations: only grow')
   WHERE NEW.adoption IS NOT OLD.adoption OR NEW.generation <= OLD.generation;
END;

CREATE TRIGGER generations_never_deleted BEFORE DELETE ON generations BEGIN
  SELECT RAISE(ABORT, 'generations: rows are never deleted');
END;

CREATE TRIGGER generations_never_replaced BEFORE INSERT ON generations BEGIN
  SELECT RAISE(ABORT, 'generations: exists')
   WHERE EXISTS (SELECT 1 FROM generations WHERE adoption = NEW.adoption);
END;

-- The first time that it told less than was known before it was asked: it was
-- put back, or is one of two copies. told is 0 where it was adopted again and told
-- none then. bound is the last request that was bound by then: that one of them
-- never ran is proved by no word of this ledger any more.
CREATE TABLE put_backs (
  adoption INTEGER PRIMARY KEY REFERENCES adoptions (n),
  at       INTEGER NOT NULL,
  known    INTEGER NOT NULL,
  told     INTEGER NOT NULL,
  bound    INTEGER NOT NULL CHECK (bound >= 0),
  CHECK (told >= 0 AND told < known)
) STRICT;

CREATE TRIGGER put_backs_never_changes BEFORE UPDATE ON put_backs BEGIN
  SELECT RAISE(ABORT, 'put_backs: rows never change');
END;

CREATE TRIGGER put_backs_never_deleted BEFORE DELETE ON put_backs BEGIN
  SELECT RAISE(ABORT, 'put_backs: rows are never deleted');
END;

CREATE TRIGGER put_backs_never_replaced BEFORE INSERT ON put_backs BEGIN
  SELECT RAISE(ABORT, 'put_backs: exists')
   WHERE EXISTS (SELECT 1 FROM put_backs WHERE adoption = NEW.adoption);
END;

-- Nothing is claimed on such a ledger until it was adopted again.
CREATE TRIGGER transitions_whole_ledger BEFORE INSERT ON transitions WHEN NEW.event = 'claim' BEGIN
  SELECT RAISE(ABORT, 'transitions: the ledger was put back')
   WHERE EXISTS (SELECT 1 FROM put_backs WHERE adoption =
     (SELECT max(n) FROM adoptions WHERE target = (SELECT target FROM receipts WHERE request = NEW.request)));
END;
