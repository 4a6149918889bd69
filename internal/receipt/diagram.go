package receipt

import (
	"fmt"
	"strings"
)

// Mermaid renders the table of transitions as a diagram for the docs, so that
// the picture is never another machine than the one that runs.
func Mermaid() string {
	var b strings.Builder
	b.WriteString("stateDiagram-v2\n    [*] --> queued: bind\n")
	type edge struct{ from, to State }
	events := map[edge][]string{}
	var edges []edge
	for _, t := range Transitions() {
		e := edge{t.From, t.To}
		if events[e] == nil {
			edges = append(edges, e)
		}
		events[e] = append(events[e], string(t.Event))
	}
	for _, e := range edges {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", e.from, e.to, strings.Join(events[e], " / "))
	}
	for _, s := range States() {
		if s.Terminal() {
			fmt.Fprintf(&b, "    %s --> [*]\n", s)
		}
	}
	return b.String()
}
