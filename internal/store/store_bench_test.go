package store_test

import (
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oduflow/oduflow-salt/internal/receipt"
	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

func benchDB(b *testing.B) *store.DB {
	b.Helper()
	cfg := store.Config{
		Path: filepath.Join(b.TempDir(), "receipts.db"), Random: rand.Reader,
		Now: func() time.Time { return receipttest.Epoch },
	}
	db := storetest.Create(b, cfg)
	if err := db.Adopt(b.Context(), receipttest.Target("a")); err != nil {
		b.Fatal(err)
	}
	return db
}

// bindAtOnce binds new requests from so many callers at once, each with a
// source of its own.
func bindAtOnce(b *testing.B, callers, sourceBytes int) {
	b.Helper()
	db := benchDB(b)
	padding := strings.Repeat("x", sourceBytes)
	var n atomic.Int64
	var wg sync.WaitGroup
	b.ResetTimer()
	for range callers {
		wg.Go(func() {
			for {
				i := int(n.Add(1))
				if i > b.N {
					return
				}
				text := fmt.Sprint(i, padding)
				if _, err := storetest.Bind(b.Context(), db, receipttest.Binding(i, "a", text), text); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "binds/s")
}

func BenchmarkBind(b *testing.B) {
	for _, c := range []struct{ callers, bytes int }{{1, 1 << 10}, {8, 1 << 10}, {64, 1 << 10}, {64, 64 << 10}} {
		b.Run(fmt.Sprintf("callers=%d/source=%dKiB", c.callers, c.bytes>>10), func(b *testing.B) {
			bindAtOnce(b, c.callers, c.bytes)
		})
	}
}

func BenchmarkRepeat(b *testing.B) {
	db := benchDB(b)
	r := receipttest.Binding(1, "a", "one")
	for b.Loop() {
		if _, err := storetest.Bind(b.Context(), db, r, "one"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	db := benchDB(b)
	if _, err := storetest.Bind(b.Context(), db, receipttest.Binding(1, "a", "one"), "one"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := db.Lookup(b.Context(), receipttest.Request(1)); err != nil {
			b.Fatal(err)
		}
	}
}

// One whole life: bind, claim, acknowledge, finish.
func BenchmarkLife(b *testing.B) {
	db := benchDB(b)
	n := 0
	for b.Loop() {
		n++
		text := fmt.Sprint(n)
		bound, err := storetest.Bind(b.Context(), db, receipttest.Binding(n, "a", text), text)
		if err != nil {
			b.Fatal(err)
		}
		x, err := db.Claim(b.Context(), bound.Request, 0, receipttest.Claim("a"))
		if err != nil {
			b.Fatal(err)
		}
		for _, e := range []receipt.Event{receipt.Acknowledge(receipttest.Epoch), receipttest.Finish(receipttest.Epoch, 3, 3)} {
			if x, err = db.Apply(b.Context(), x.Request, x.Seq, e); err != nil {
				b.Fatal(err)
			}
		}
	}
}
