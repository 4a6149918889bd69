package store_test

import (
	"testing"

	"github.com/oduflow/oduflow-salt/internal/receipt/receipttest"
	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

// An instance is recorded for whoever was adopted as it last and is it still.
func TestHolder(t *testing.T) {
	db := storetest.Create(t, storetest.Config(t, storetest.NewClock()))
	adopt := func(id, instance string) {
		t.Helper()
		target := receipttest.Target(id)
		target.Instance = instance
		if err := db.Adopt(t.Context(), target); err != nil {
			t.Fatal(err)
		}
	}
	want := func(instance, id string) {
		t.Helper()
		holder, err := db.Holder(t.Context(), instance)
		if err != nil || (holder == nil) != (id == "") || holder != nil && (holder.ID != id || holder.Instance != instance) {
			t.Errorf("%s is recorded for %+v (%v), want %q", instance, holder, err, id)
		}
	}
	one, two := receipttest.Instance("one"), receipttest.Instance("two")
	want(one, "")
	adopt("web", one)
	adopt("db", two)
	want(one, "web")
	want(two, "db")
	adopt("web-2", one) // web was renamed
	want(one, "web-2")
	adopt("web-2", receipttest.Instance("three")) // and web-2 replaced
	want(one, "web")
	adopt("web", receipttest.Instance("four"))
	want(one, "")
}
