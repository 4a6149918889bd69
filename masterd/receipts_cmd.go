package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/oduflow/oduflow-salt/internal/httpapi"
	"github.com/oduflow/oduflow-salt/internal/problem"
)

const receiptsUsage = `receipts list [--target TARGET] [--status STATUS] [--code CODE] [--conflicts] [--owed]
                             [--limit N] [--config FILE] [--json]
       masterd receipts show REQUEST [--source] [--config FILE] [--json]

What masterd knows of the requests it was given. list shows the newest first;
show tells all of one: identity, state, times, every change with who made it,
and every statement of its target's ledger with what it proves. The source is
private: it is shown only with --source. Only uid 0 may use either. A receipt
can't be deleted or changed; masterd reconcile settles an uncertain one.

A "!" marks evidence that contradicts a receipt, "owed" a settlement that the
target's ledger doesn't know of yet.

Examples:
  masterd receipts list --status uncertain
  masterd receipts list --target web-1 --limit 20 --json
  masterd receipts show 6f1c1b5e-8d0c-4b57-9c0e-2f7a3a5d9b10
`

func receipts(ctx context.Context, c console, args []string) int {
	f := flags(c, "receipts", receiptsUsage)
	path := configFlag(f)
	var q httpapi.ListQuery
	f.StringVar(&q.Target, "target", "", "only of this `minion`")
	f.StringVar(&q.Status, "status", "", "only `queued`, running, succeeded, failed or uncertain")
	f.StringVar(&q.Code, "code", "", "only with this `code`")
	f.BoolVar(&q.Conflicts, "conflicts", false, "only where evidence contradicts the receipt")
	f.BoolVar(&q.Owed, "owed", false, "only where the target's ledger doesn't know of a settlement yet")
	f.Int64Var(&q.Limit, "limit", 100, "the newest `so many`, at most 10000")
	source := f.Bool("source", false, "show the source too")
	asJSON := f.Bool("json", false, "print one JSON object")
	rest, exit, ok := parse(f, args)
	if !ok {
		return exit
	}
	listing := len(rest) == 1 && rest[0] == "list"
	if !listing && (len(rest) != 2 || rest[0] != "show") {
		return usageError(c, "receipts takes list, or show REQUEST; see masterd receipts --help")
	}
	client, err := connect(*path)
	if err != nil {
		return fail(c, err)
	}
	if listing {
		list, err := client.ReceiptsList(ctx, q)
		if err != nil {
			return fail(c, err)
		}
		if *asJSON {
			return printJSON(c, list)
		}
		printList(c.out, list)
		return problem.ExitOK
	}
	detail, err := client.ReceiptsShow(ctx, rest[1], *source)
	if err != nil {
		return fail(c, err)
	}
	if *asJSON {
		return printJSON(c, detail)
	}
	printDetail(c.out, detail)
	printNext(c.out, detail.Next)
	return problem.ExitOK
}

func printNext(out io.Writer, next string) { fmt.Fprintf(out, "\nnext: %s\n", next) }

func printList(out io.Writer, list httpapi.ReceiptList) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REQUEST\tTARGET\tPROFILE\tSTATUS\tCODE\tACCEPTED\tNOTES")
	for _, r := range list.Receipts {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Request, r.Target, r.Profile, r.Status,
			dash(r.Code), second(r.AcceptedAt), dash(notes(r)))
	}
	_ = w.Flush()
	printNext(out, list.Next)
}

func notes(r httpapi.ReceiptRow) *string {
	var all []string
	if r.Conflict {
		all = append(all, "! evidence conflict")
	}
	if r.Settled {
		all = append(all, "settled")
	}
	if r.Owed {
		all = append(all, "owed")
	}
	if r.FromLedger {
		all = append(all, "from ledger")
	}
	s := strings.Join(all, ", ")
	return orNull(s)
}

func dash[T ~string](s *T) string {
	if s == nil || *s == "" {
		return "-"
	}
	return string(*s)
}

// second shortens a time of the API to what people read in a table.
func second(at *string) string {
	if at == nil {
		return "-"
	}
	t, err := time.Parse(time.RFC3339Nano, *at)
	if err != nil {
		return *at
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

func printDetail(out io.Writer, d httpapi.ReceiptDetail) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	line("request", "%s", d.Request)
	if d.AliasOf != nil {
		line("execution", "%s (reused)", *d.AliasOf)
	}
	line("target", "%s, instance %s", d.Target, d.Instance)
	state := ""
	if string(d.State) != string(d.Status) {
		state = " (" + string(d.State) + ")"
	}
	line("status", "%s%s%s", d.Status, state, suffix(", code ", d.Code))
	if d.Settled {
		line("", "settled by an operator, not proved")
	}
	if d.FromLedger {
		line("", "made of the target's ledger: this database didn't know the request")
	}
	if d.BlockedBy != nil {
		line("blocked by", "%s, since %s", d.BlockedBy.Request, second(d.BlockedBy.Since))
	}
	line("profile", "%s, revision %d, digest %s", d.Profile, d.Revision, d.Digest)
	line("job", "%s", dash(d.JID))
	line("states", "%d declared, %d passed, %d failed, %d not run", d.Counts.Declared, d.Counts.Passed, d.Counts.Failed, d.Counts.NotRun)
	line("requester", "%s", dash(&d.Requester))
	line("accepted", "%s", second(d.AcceptedAt))
	line("dispatched", "%s", second(d.DispatchedAt))
	line("finished", "%s", second(d.FinishedAt))
	_ = w.Flush()
	printHistory(out, d)
	if s := d.Settlement; s != nil {
		fmt.Fprintf(out, "\nsettled as %s by %s at %s\n  reason    %s\n  observed  %s\n  ledger    %s\n", s.Outcome, s.By, second(s.At),
			s.Reason, strings.ReplaceAll(s.Observed, "\n", "\n            "), ledgerOf(*s))
	}
	if d.Source != nil {
		fmt.Fprintf(out, "\nsource\n%s", indent(*d.Source))
	}
}

func suffix[T ~string](before string, s *T) string {
	if s == nil {
		return ""
	}
	return before + string(*s)
}

func ledgerOf(s httpapi.SettlementJSON) string {
	switch {
	case s.ServerGone:
		return "its server is gone"
	case s.Owed:
		return "not told yet: it is told with the target's next request"
	}
	return "told at " + second(s.DeliveredAt)
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ") + "\n"
}

func printHistory(out io.Writer, d httpapi.ReceiptDetail) {
	fmt.Fprintln(out, "\nchanges")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, t := range d.Transitions {
		fmt.Fprintf(w, "  %s\t%s\t%s -> %s\t%s\t%s\n", second(t.At), t.Event, t.From, t.To, t.Actor, dash(t.Code))
	}
	_ = w.Flush()
	fmt.Fprintln(out, "\nwitnesses")
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, x := range d.Witnesses {
		mark := ""
		if x.Conflict {
			mark = "! "
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%sproves: %s\n", second(x.At), x.Kind, x.Result, dash(x.Code), mark, x.Proves)
	}
	_ = w.Flush()
	if len(d.Witnesses) == 0 {
		fmt.Fprintln(out, "  none")
	}
}
