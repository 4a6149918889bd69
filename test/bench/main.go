// Command bench compares one custom_start, and eight clients at once, with
// salt-api's runner call and with salt-run, in one run on one machine: `make
// bench`. It reports ratios; absolute times depend on the machine. It also says
// what masterd costs while it idles.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/oduflow/oduflow-salt/test/lab"
	"github.com/oduflow/oduflow-salt/test/oduflow"
)

const usage = `Usage: bench [--salt LINE]

Exit status: 0 measured, 1 something failed.
`

func main() {
	line := flag.String("salt", "3006", "the Salt `line`")
	flag.Usage = func() { fmt.Print(usage); flag.PrintDefaults() }
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx, *line); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench(ctx context.Context, line string) (err error) {
	l, err := lab.Up(ctx, lab.Options{Salt: line, Minions: 1, Log: os.Stdout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	b := &benchmark{lab: l, instance: oduflow.NewUUID()}
	if err := l.Adopt(ctx, 1, b.instance); err != nil {
		return err
	}
	token, err := l.Token(ctx, "custom", "bench")
	if err != nil {
		return err
	}
	if b.client, err = oduflow.OverTLS(l.MasterdURL(), l.MasterdCert(), token); err != nil {
		return err
	}
	if err := b.idle(ctx); err != nil {
		return err
	}
	return b.compare(ctx)
}

type benchmark struct {
	lab      *lab.Lab
	client   *oduflow.Client
	instance string
}

// call is one way to start a state; each call makes its own request.
type call func(ctx context.Context) error

// compare keeps the target busy, so that the calls bind receipts and nothing
// else, and measures each way in turn.
func (b *benchmark) compare(ctx context.Context) error {
	release := filepath.Join(b.lab.MinionDir(1).Root, "go")
	if _, err := b.client.CustomStart(ctx, b.start("holds:\n  cmd.run:\n    - name: while [ ! -e "+release+" ]; do sleep 0.1; done\n")); err != nil {
		return err
	}
	defer func() { _ = os.WriteFile(release, nil, 0o644) }()
	ours := func(ctx context.Context) error {
		_, err := b.client.CustomStart(ctx, b.start("a:\n  test.nop:\n    - note: "+oduflow.NewUUID()+"\n"))
		return err
	}
	fmt.Println("\none call at a time (median, milliseconds)")
	one := map[string]float64{}
	for _, w := range []struct {
		name  string
		calls int
		call  call
	}{{"custom_start", 300, ours}, {"salt-api runner", 15, b.saltAPI}, {"salt-run", 7, b.saltRun}} {
		median, err := sequential(ctx, w.calls, w.call)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		one[w.name] = median.Seconds()
		fmt.Printf("  %-16s %9.2f\n", w.name, median.Seconds()*1000)
	}
	fmt.Println("eight clients at once (calls a second, failed calls)")
	eight := map[string]float64{}
	for _, w := range []struct {
		name string
		time time.Duration
		call call
	}{{"custom_start", 4 * time.Second, ours}, {"salt-api runner", 12 * time.Second, b.saltAPI}, {"salt-run", 10 * time.Second, b.saltRun}} {
		rate, failed := atOnce(ctx, 8, w.time, w.call)
		eight[w.name] = rate
		fmt.Printf("  %-16s %9.1f  %d\n", w.name, rate, failed)
	}
	fmt.Printf("ratios: one call %.0fx as fast as salt-api, %.0fx as salt-run; throughput %.0fx and %.0fx\n",
		one["salt-api runner"]/one["custom_start"], one["salt-run"]/one["custom_start"],
		eight["custom_start"]/eight["salt-api runner"], eight["custom_start"]/eight["salt-run"])
	return nil
}

func (b *benchmark) start(source string) oduflow.Start {
	return oduflow.Start{Request: oduflow.NewUUID(), Target: "minion-1", Instance: b.instance, Source: source, Revision: 1, Requester: "bench"}
}

// saltAPI calls the cheapest runner there is: what is left is Salt's own cost.
func (b *benchmark) saltAPI(ctx context.Context) error {
	form := url.Values{"client": {"runner"}, "fun": {"test.arg"}, "eauth": {"sharedsecret"},
		"username": {lab.APIUser}, "password": {b.lab.APISecret}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.lab.APIURL()+"/run", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("salt-api answered %d", resp.StatusCode)
	}
	return nil
}

func (b *benchmark) saltRun(ctx context.Context) error {
	r, err := b.lab.SaltRun(ctx, "test.arg")
	if err == nil && r.Code != 0 {
		err = fmt.Errorf("salt-run: exit status %d", r.Code)
	}
	return err
}

func sequential(ctx context.Context, n int, c call) (time.Duration, error) {
	if err := c(ctx); err != nil { // not counted: connections, caches
		return 0, err
	}
	took := make([]time.Duration, n)
	for i := range took {
		began := time.Now()
		if err := c(ctx); err != nil {
			return 0, err
		}
		took[i] = time.Since(began)
	}
	slices.Sort(took)
	return took[n/2], nil
}

func atOnce(ctx context.Context, clients int, d time.Duration, c call) (rate float64, failed int) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	began := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	good := 0
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				err := c(ctx)
				mu.Lock()
				if err == nil {
					good++
				} else if ctx.Err() == nil {
					failed++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return float64(good) / time.Since(began).Seconds(), failed
}

// idle starts masterd anew, and looks at what it costs while nothing happens.
func (b *benchmark) idle(ctx context.Context) error {
	if err := b.lab.StopMasterd(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := b.lab.StartMasterd(ctx); err != nil {
		return err
	}
	ready := time.Since(began)
	procs := b.lab.Processes("masterd")
	if len(procs) != 1 {
		return fmt.Errorf("%d masterd processes", len(procs))
	}
	before, err := cpuTicks(procs[0].PID)
	if err != nil {
		return err
	}
	const watched = 10 * time.Second
	select {
	case <-time.After(watched):
	case <-ctx.Done():
		return ctx.Err()
	}
	after, err := cpuTicks(procs[0].PID)
	if err != nil {
		return err
	}
	resident, err := residentKB(procs[0].PID)
	if err != nil {
		return err
	}
	fmt.Printf("\nmasterd: ready %d ms after its start; idle: %.1f MB resident, %d ms of CPU in %s\n",
		ready.Milliseconds(), float64(resident)/1024, (after-before)*10, watched)
	return nil
}

// cpuTicks gives user and system time in hundredths of a second.
func cpuTicks(pid int) (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return user + system, errors.Join(err1, err2)
}

func residentKB(pid int) (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
		}
	}
	return 0, errors.New("no VmRSS")
}
