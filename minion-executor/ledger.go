package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/oduflow/oduflow-salt/internal/ledger"
	"github.com/oduflow/oduflow-salt/internal/message"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

const defaultStateDir = "/var/lib/oduflow-minion"

// shownRecord is a record as `ledger show --json` prints it.
type shownRecord struct {
	Request    string          `json:"request"`
	State      ledger.State    `json:"state"`
	Code       problem.Code    `json:"code,omitempty"`
	Unfinished bool            `json:"unfinished"`
	Instance   string          `json:"instance"`
	Profile    string          `json:"profile"`
	Digest     string          `json:"digest"`
	Ledger     string          `json:"ledger"`
	Counts     *message.Counts `json:"counts,omitempty"`
	Outcome    message.Outcome `json:"outcome,omitempty"` // as an operator settled it
	PreparedAt time.Time       `json:"prepared_at"`
	DecidedAt  *time.Time      `json:"decided_at,omitempty"`
	EffectAt   *time.Time      `json:"effect_at,omitempty"`
	FinishedAt *time.Time      `json:"finished_at,omitempty"`
}

type shownLedger struct {
	Identity   *ledger.Identity `json:"identity"`
	Generation uint64           `json:"generation"` // how many facts were ever written
	Lease      string           `json:"lease"`      // "free", or the request that holds it
	Records    []shownRecord    `json:"records"`
	Counters   map[string]int   `json:"counters"`
}

func showLedger(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("minion-executor ledger show", flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("state-dir", defaultStateDir, "the minion's oduflow.state_dir")
	asJSON := flags.Bool("json", false, "print one JSON object")
	if err := flags.Parse(args); err != nil || flags.NArg() != 0 {
		return problem.ExitUsage
	}
	shown, err := readLedger(*dir)
	if err != nil {
		outer := problem.Outer(err)
		fmt.Fprintf(stderr, "minion-executor: %s: %s\n", outer.Code, outer.Message)
		if outer.Hint != "" {
			fmt.Fprintf(stderr, "minion-executor: %s\n", outer.Hint)
		}
		return problem.ExitFailed
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", "  ")
		if enc.Encode(shown) != nil {
			return problem.ExitFailed
		}
		return problem.ExitOK
	}
	printLedger(stdout, shown)
	return problem.ExitOK
}

func readLedger(dir string) (*shownLedger, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, problem.Wrap(problem.NotFound, err, "there is no ledger in %s", dir)
	}
	l, err := ledger.Open(ledger.Config{Dir: dir, Machine: ledger.ThisMachine(), Random: rand.Reader})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := l.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	shown := &shownLedger{Lease: "free", Records: []shownRecord{}, Counters: s.Counters().Counts}
	if shown.Identity, err = s.Identity(); err != nil {
		return nil, err
	}
	if shown.Generation, err = l.Generation(); err != nil {
		return nil, err
	}
	lease, err := l.ProbeLease()
	if err != nil {
		return nil, err
	}
	lease.Release()
	if lease.Held {
		shown.Lease = lease.Holder
	}
	records, err := s.Records()
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		shown.Records = append(shown.Records, shownRecord{
			Request: r.Request, State: r.State, Code: r.Code, Unfinished: r.Unfinished(), Instance: r.Instance,
			Profile: r.Profile, Digest: r.Digest, Ledger: r.Ledger, Counts: r.Counts, Outcome: r.Outcome, PreparedAt: r.PreparedAt,
			DecidedAt: timeOrNil(r.DecidedAt), EffectAt: timeOrNil(r.EffectAt), FinishedAt: timeOrNil(r.FinishedAt),
		})
	}
	return shown, nil
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func printLedger(out io.Writer, l *shownLedger) {
	if l.Identity == nil {
		fmt.Fprintln(out, "identity  none: this server was not adopted")
	} else {
		fmt.Fprintf(out, "ledger    %s\ninstance  %s\nmachine   %s\n", l.Identity.Ledger, l.Identity.Instance, l.Identity.Machine)
	}
	fmt.Fprintf(out, "facts     %d\nlease     %s\n\n", l.Generation, l.Lease)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "REQUEST\tSTATE\tCODE\tPASSED\tFAILED\tNOT RUN\tPREPARED")
	for _, r := range l.Records {
		passed, failed, notRun := "-", "-", "-"
		if c := r.Counts; c != nil {
			passed, failed, notRun = fmt.Sprint(c.Passed), fmt.Sprint(c.Failed), fmt.Sprint(c.NotRun)
		}
		code := string(r.Code)
		if r.Outcome != "" {
			code = string(r.Outcome)
		}
		if code == "" {
			code = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Request, r.State, code, passed, failed, notRun,
			r.PreparedAt.Format(time.RFC3339))
	}
	_ = table.Flush()
	for _, reason := range slices.Sorted(maps.Keys(l.Counters)) {
		fmt.Fprintf(out, "\n%s  %d", reason, l.Counters[reason])
	}
	if len(l.Counters) > 0 {
		fmt.Fprintln(out)
	}
}
