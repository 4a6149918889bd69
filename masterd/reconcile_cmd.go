package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

const evidenceUsage = `evidence REQUEST [--config FILE] [--json]

Asks the request's target again, now, and shows every statement of its ledger
with its time and what it proves. It has no effect on the target, and may be
repeated. What it proves is written into the receipt. Only uid 0 may do it.
It ends with the receipt's own exit status.

Examples:
  masterd evidence 6f1c1b5e-8d0c-4b57-9c0e-2f7a3a5d9b10
  masterd evidence 6f1c1b5e-8d0c-4b57-9c0e-2f7a3a5d9b10 --json
`

func askEvidence(ctx context.Context, c console, args []string) int {
	f := flags(c, "evidence", evidenceUsage)
	path := configFlag(f)
	asJSON := f.Bool("json", false, "print one JSON object")
	rest, exit, ok := parse(f, args)
	if !ok {
		return exit
	}
	if len(rest) != 1 {
		return usageError(c, "evidence takes one REQUEST; see masterd evidence --help")
	}
	client, err := connect(*path)
	if err != nil {
		return fail(c, err)
	}
	answer, err := client.Evidence(ctx, rest[0])
	if err != nil {
		return fail(c, err)
	}
	exit = exitOf(string(answer.Receipt.Status))
	if *asJSON {
		if failed := printJSON(c, answer); failed != problem.ExitOK {
			return failed
		}
		return exit
	}
	if answer.Answered {
		fmt.Fprintf(c.out, "%s answers: %s\n", answer.Receipt.Target, dash(answer.Result))
		if answer.Survivors > 0 {
			fmt.Fprintf(c.out, "%d processes that the request started still run there\n", answer.Survivors)
		}
	} else {
		fmt.Fprintf(c.out, "%s doesn't answer: %s\n", answer.Receipt.Target, dash(answer.Silence))
	}
	fmt.Fprintln(c.out)
	printDetail(c.out, answer.Receipt)
	printNext(c.out, answer.Next)
	return exit
}

func exitOf(status string) int {
	switch status {
	case "failed":
		return problem.ExitFailed
	case "uncertain":
		return problem.ExitUncertain
	}
	return problem.ExitOK
}

const reconcileUsage = `reconcile REQUEST --outcome succeeded|failed --reason TEXT --observed TEXT|FILE
                       [--confirm TARGET] [--server-gone] [--config FILE] [--json]

Records what became of an uncertain request, after somebody has looked at its
server, and so ends the quarantine. The target's ledger is asked first: what it
proves stands, and another outcome is refused; so is any while the job, or a
process it left, still runs. The target's name is asked for as confirmation;
scripts give it with --confirm.

The receipt stays marked as settled, with your reason, what was observed (a
text, or a file to read it from, at most 16 KiB) and your uid. Such a success
is never reused for a repeated request. The target's ledger is told too, now or
with its next request. Nothing can undo it. Only uid 0 may do it.

--server-gone is for a destroyed server, once its successor is adopted under
the same name with another instance: its ledger isn't asked or told.

Examples:
  masterd reconcile 6f1c1b5e-8d0c-4b57-9c0e-2f7a3a5d9b10 --outcome failed \
    --reason "the host lost power" --observed "apt is half way: dpkg --audit lists nginx"
  masterd reconcile 6f1c1b5e-8d0c-4b57-9c0e-2f7a3a5d9b10 --outcome succeeded \
    --reason "executor killed by the OOM killer" --observed /root/web-1-findings.txt --confirm web-1
`

func reconcileReceipt(ctx context.Context, c console, args []string) int {
	f := flags(c, "reconcile", reconcileUsage)
	path := configFlag(f)
	var q httpapi.ReconcileQuery
	f.StringVar(&q.Outcome, "outcome", "", "what became of it: `succeeded` or failed")
	f.StringVar(&q.Reason, "reason", "", "why it has to be settled by hand (`text`)")
	observed := f.String("observed", "", "what was seen on the server: a `text`, or the name of a file that holds it")
	f.StringVar(&q.Confirm, "confirm", "", "the `target`'s name, instead of being asked for it")
	f.BoolVar(&q.ServerGone, "server-gone", false, "the server was destroyed and its successor is adopted")
	asJSON := f.Bool("json", false, "print one JSON object")
	rest, exit, ok := parse(f, args)
	if !ok {
		return exit
	}
	if len(rest) != 1 || q.Outcome == "" || q.Reason == "" || *observed == "" {
		return usageError(c, "reconcile takes one REQUEST, --outcome, --reason and --observed; see masterd reconcile --help")
	}
	q.Request = rest[0]
	var err error
	if q.Observed, err = textOrFile(*observed); err != nil {
		return fail(c, err)
	}
	client, err := connect(*path)
	if err != nil {
		return fail(c, err)
	}
	answer, err := client.Reconcile(ctx, q)
	if problem.CodeOf(err) == problem.NotConfirmed && q.Confirm == "" && interactive(c.in) {
		// The ledger was asked and proves nothing, and nothing runs.
		if q.Confirm, err = askTarget(c, err); err == nil {
			answer, err = client.Reconcile(ctx, q)
		}
	}
	if err != nil {
		return fail(c, err)
	}
	if *asJSON {
		return printJSON(c, answer)
	}
	printReconciled(c.out, answer)
	return problem.ExitOK
}

// askTarget asks for the target's name. The ledger is asked again after it.
func askTarget(c console, because error) (string, error) {
	fmt.Fprintf(c.out, "%s.\nType the target's name to confirm: ", problem.Outer(because).Message)
	line, err := bufio.NewReader(c.in).ReadString('\n')
	if err != nil && line == "" {
		return "", problem.New(problem.NotConfirmed, "nothing was confirmed, and nothing is settled")
	}
	return strings.TrimSpace(line), nil
}

// interactive says that somebody can be asked.
func interactive(in io.Reader) bool {
	if f, ok := in.(*os.File); ok {
		_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
		return err == nil
	}
	asked, ok := in.(interface{ Interactive() bool })
	return ok && asked.Interactive()
}

// textOrFile gives a text, or what a file of that name holds.
func textOrFile(given string) (string, error) {
	info, err := os.Stat(given)
	if err != nil || !info.Mode().IsRegular() {
		if strings.HasPrefix(given, "/") && !strings.ContainsAny(given, " \n") && errors.Is(err, fs.ErrNotExist) {
			return "", problem.Wrap(problem.Usage, err, "there is no file %s", given).
				WithHint("give what was observed as a text, or an existing file")
		}
		return given, nil
	}
	if info.Size() > httpapi.MaxObserved {
		return "", problem.New(problem.TooLarge, "%s has more than 16 KiB", given).WithHint("keep what matters of it")
	}
	raw, err := os.ReadFile(given)
	if err != nil {
		return "", problem.Wrap(problem.Usage, err, "%s can't be read", given)
	}
	return string(raw), nil
}

func printReconciled(out io.Writer, a httpapi.ReconcileAnswer) {
	r := a.Receipt
	switch a.Settled {
	case "evidence":
		fmt.Fprintf(out, "request %s has %s: proved by the ledger of %s, nothing had to be settled\n", r.Request, r.Status, r.Target)
	case "already":
		fmt.Fprintf(out, "request %s was settled as %s before\n", r.Request, r.Status)
	default:
		fmt.Fprintf(out, "request %s is settled as %s\n", r.Request, r.Status)
	}
	if s := r.Settlement; s != nil {
		fmt.Fprintf(out, "  by      %s at %s\n  ledger  %s\n", s.By, second(s.At), ledgerOf(*s))
	}
	if a.Silence != nil {
		fmt.Fprintf(out, "  %s didn't answer: %s\n", r.Target, *a.Silence)
	}
	printNext(out, a.Next)
}
