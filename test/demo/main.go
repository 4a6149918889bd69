// Command demo shows the main job on real Salt, from nothing to clean again:
// `make demo`. With --keep (KEEP=1) the lab stays up and it prints how to reach it.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/oduflow/oduflow-salt/test/lab"
	"github.com/oduflow/oduflow-salt/test/oduflow"
)

const usage = `Usage: demo [--salt LINE] [--keep]

Brings up real Salt with one minion, applies an example state as Odoo would over
HTTPS, shows its receipt as it changes, repeats the request, shows a refused
state and a failing one, and cleans up.

Exit status: 0 all went as shown, 1 something didn't.
`

// The states of the demo, each in a file of its own so that it can be read.
var (
	//go:embed motd.sls
	motd string
	//go:embed refused.sls
	refused string
	//go:embed failing.sls
	failing string
)

func main() {
	line := flag.String("salt", "3006", "the Salt `line`: 3006, 3007 or 3008")
	keep := flag.Bool("keep", false, "leave the lab running")
	flag.Usage = func() { fmt.Print(usage); flag.PrintDefaults() }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := demo(ctx, *line, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, line string, keep bool) (err error) {
	say("1. Real Salt %s with one minion, salt-api and masterd, on loopback (the first time installs Salt: some minutes)", line)
	l, err := lab.Up(ctx, lab.Options{Salt: line, Minions: 1, Log: os.Stdout})
	if err != nil {
		return err
	}
	defer func() {
		if keep && err == nil {
			return
		}
		err = errors.Join(err, l.Down())
		fmt.Println("   all of it is down and removed again")
	}()
	d, err := newDemo(ctx, l)
	if err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{d.apply, d.repeat, d.refuse, d.fail} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	say("Done.")
	if keep {
		d.howToReach()
		l.Detach()
	}
	return nil
}

type demonstration struct {
	lab      *lab.Lab
	odoo     *oduflow.Client
	token    string
	instance string
	first    oduflow.Start
	file     string // that the example state writes
}

func newDemo(ctx context.Context, l *lab.Lab) (*demonstration, error) {
	d := &demonstration{lab: l, instance: oduflow.NewUUID(), file: filepath.Join(l.MinionDir(1).Root, "demo-motd")}
	say("2. An operator adopts the server and makes a token for Odoo")
	if err := l.Adopt(ctx, 1, d.instance); err != nil {
		return nil, err
	}
	token, err := l.Token(ctx, "custom", "demo")
	if err != nil {
		return nil, err
	}
	d.token = token
	d.odoo, err = oduflow.OverTLS(l.MasterdURL(), l.MasterdCert(), token)
	fmt.Printf("   minion-1 is instance %s\n", d.instance)
	return d, err
}

func (d *demonstration) start(source string) oduflow.Start {
	return oduflow.Start{
		Request: oduflow.NewUUID(), Target: "minion-1", Instance: d.instance, Revision: 1, Requester: "demo",
		Source: fmt.Sprintf(source, d.file),
	}
}

func (d *demonstration) apply(ctx context.Context) error {
	d.first = d.start(motd)
	say("3. Apply, as Odoo does: POST /v1/custom_start with request %s\n%s", d.first.Request, indent(d.first.Source))
	a, err := d.odoo.CustomStart(ctx, d.first)
	if err != nil {
		return err
	}
	show(a)
	a, err = d.odoo.Await(ctx, d.first.Request, show)
	if err != nil {
		return err
	}
	if a.Status != "succeeded" || a.Counts.Passed != 3 {
		return fmt.Errorf("expected 3 of 3, got %s with %d of %d", a.Status, a.Counts.Passed, a.Counts.Declared)
	}
	text, err := os.ReadFile(d.file)
	if err != nil {
		return err
	}
	fmt.Printf("   on the minion, %s holds: %s", d.file, text)
	return nil
}

func (d *demonstration) repeat(ctx context.Context) error {
	say("4. The answer was lost? The same request again: the same receipt, nothing runs")
	before, err := os.Stat(d.file + ".ran")
	if err != nil {
		return err
	}
	a, err := d.odoo.CustomStart(ctx, d.first)
	if err != nil {
		return err
	}
	show(a)
	after, err := os.Stat(d.file + ".ran")
	if err != nil {
		return err
	}
	if !before.ModTime().Equal(after.ModTime()) {
		return errors.New("the state ran again")
	}
	fmt.Println("   the minion's file wasn't touched")
	return nil
}

func (d *demonstration) refuse(ctx context.Context) error {
	s := d.start(refused)
	say("5. A state with a template in it is refused, with the place and what to do\n%s", indent(s.Source))
	_, err := d.odoo.CustomStart(ctx, s)
	var r *oduflow.Refusal
	if !errors.As(err, &r) {
		return fmt.Errorf("expected a refusal, got %w", err)
	}
	fmt.Printf("   %d %s, line %d, column %d: %s\n   hint: %s\n", r.Status, r.Code, r.Line, r.Column, r.Message, r.Hint)
	return nil
}

func (d *demonstration) fail(ctx context.Context) error {
	s := d.start(failing)
	say("6. A state that fails on the server: which of its three, and how many didn't run\n%s", indent(s.Source))
	if _, err := d.odoo.CustomStart(ctx, s); err != nil {
		return err
	}
	a, err := d.odoo.Await(ctx, s.Request, show)
	if err != nil {
		return err
	}
	if a.Status != "failed" || a.Code != "state_failed" {
		return fmt.Errorf("expected state_failed, got %s %s", a.Status, a.Code)
	}
	return nil
}

func (d *demonstration) howToReach() {
	fmt.Printf(`The lab is still up.
  receipts  %s
  socket    curl --unix-socket %s http://masterd/v1/health
  HTTPS     curl --cacert %s -H "Authorization: Bearer %s" %s/v1/health
  Salt      %s -c %s minion-1 test.ping
  end it    go run ./test/lab/cmd/lab down --dir %s
`, d.lab.DatabasePath(), d.lab.MasterdSocket(), d.lab.MasterdCert(), d.token, d.lab.MasterdURL(),
		d.lab.VenvBin("salt"), d.lab.MasterConfigDir(), d.lab.Dir)
}

func say(format string, args ...any) {
	fmt.Printf("\n%s "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

func show(a oduflow.Answer) {
	fmt.Printf("   %-9s  passed %d of %d, failed %d, not run %d", a.Status, a.Counts.Passed, a.Counts.Declared, a.Counts.Failed, a.Counts.NotRun)
	if a.JID != "" {
		fmt.Printf("  jid %s", a.JID)
	}
	if a.Code != "" {
		fmt.Printf("  code %s", a.Code)
	}
	fmt.Println()
}

func indent(text string) string {
	out := ""
	start := 0
	for i := range len(text) {
		if text[i] == '\n' {
			out += "      " + text[start:i+1]
			start = i + 1
		}
	}
	return out
}
