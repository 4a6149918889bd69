package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/oduflow/oduflow-salt/internal/config"
	"github.com/oduflow/oduflow-salt/internal/problem"
	"github.com/oduflow/oduflow-salt/internal/store"
)

const backupUsage = `backup FILE [--config FILE] [--json]

Copies the receipt database to FILE, which must not exist: one committed state,
mode 0600, checked and synced. masterd may be running. The copy holds sources:
keep it as private as the database. Keys aren't in it.

Examples:
  masterd backup /var/backups/oduflow/receipts-$(date +%F).db
`

func backup(ctx context.Context, c console, args []string) int {
	a, exit, ok := oneFile(c, "backup", backupUsage, args)
	if !ok {
		return exit
	}
	cfg := a.cfg
	to, err := filepath.Abs(a.file)
	if err != nil {
		return fail(c, problem.Wrap(problem.Usage, err, "%s can't be made absolute", a.file))
	}
	if err := store.Backup(ctx, cfg.Database, to); err != nil {
		return fail(c, err)
	}
	const next = "copy it to another machine; masterd restore FILE brings it back"
	if a.asJSON {
		return printJSON(c, map[string]string{"database": cfg.Database, "backup": to, "next": next})
	}
	fmt.Fprintf(c.out, "%s is copied to %s\n", cfg.Database, to)
	printNext(c.out, next)
	return problem.ExitOK
}

const restoreUsage = `restore FILE [--config FILE] [--json]

Puts a backup in the place of the receipt database, as a new epoch. It is
refused while masterd runs; run it as masterd's own user. The database that was
there is kept beside it. Nothing runs a second time: what waited in the backup
is never started, what was dispatched is resolved by the minions' ledgers, and
a run that only a ledger knows becomes an uncertain receipt once its target is
used. FILE may be the database itself, where an older copy was put there by
hand.

Examples:
  systemctl stop masterd
  sudo -u oduflow masterd restore /var/backups/oduflow/receipts-2026-11-30.db
  systemctl start masterd
`

func restore(ctx context.Context, c console, args []string) int {
	a, exit, ok := oneFile(c, "restore", restoreUsage, args)
	if !ok {
		return exit
	}
	cfg := a.cfg
	done, err := store.Restore(ctx, store.Config{
		Path: cfg.Database, Now: time.Now, Random: rand.Reader, Logger: hclog.NewNullLogger(),
	}, a.file)
	if err != nil {
		return fail(c, err)
	}
	const next = "start masterd, then: masterd receipts list --status uncertain"
	if a.asJSON {
		return printJSON(c, map[string]any{
			"database": cfg.Database, "epoch": done.Epoch, "replaced": orNull(done.Replaced),
			"waiting": done.Waiting, "open": done.Open, "next": next,
		})
	}
	fmt.Fprintf(c.out, "%s is %s now, in the new epoch %s\n", cfg.Database, a.file, done.Epoch)
	if done.Replaced != "" {
		fmt.Fprintf(c.out, "  what was there  %s\n", done.Replaced)
	}
	fmt.Fprintf(c.out, "  waiting in it   %d: none of them is started; their ledgers say whether they ran\n", done.Waiting)
	fmt.Fprintf(c.out, "  not ended       %d: resolved by evidence\n", done.Open)
	printNext(c.out, next)
	return problem.ExitOK
}

// fileCommand is a command line with one FILE, and the configuration it names.
type fileCommand struct {
	cfg    *config.Config
	file   string
	asJSON bool
}

// oneFile reads such a command line. Where ok is false, all is said already and
// exit is the status.
func oneFile(c console, name, usage string, args []string) (a fileCommand, exit int, ok bool) {
	f := flags(c, name, usage)
	path := configFlag(f)
	asJSON := f.Bool("json", false, "print one JSON object")
	rest, exit, ok := parse(f, args)
	if !ok {
		return a, exit, false
	}
	if len(rest) != 1 {
		return a, usageError(c, "%s takes one FILE; see masterd %s --help", name, name), false
	}
	cfg, err := config.Read(*path)
	if err != nil {
		return a, fail(c, err), false
	}
	return fileCommand{cfg: cfg, file: rest[0], asJSON: *asJSON}, problem.ExitOK, true
}
