package store_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/oduflow/oduflow-salt/internal/store/storetest"
)

func TestMain(m *testing.M) {
	becomeChild()
	goleak.VerifyTestMain(m)
}

func TestExercise(t *testing.T) {
	storetest.Exercise(t, func(t *testing.T, clock *storetest.Clock) storetest.Store {
		return storetest.Create(t, storetest.Config(t, clock))
	})
}
