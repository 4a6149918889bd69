// Badplugin takes the place of plugins/custom in the fault matrix. What it does
// wrong is its name: die (at launch), killed (while it converts) or hang.
package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/oduflow/oduflow-salt/internal/executor"
)

// fault is set by -ldflags -X: the host launches a plugin by its descriptor,
// so it can't know its name.
var fault = "die"

func main() {
	if fault == "die" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	executor.Serve(converter{})
}

type converter struct{}

// Convert never answers.
func (converter) Convert(ctx context.Context, _ []byte) ([]byte, error) {
	if fault == "killed" {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	<-ctx.Done()
	return nil, errors.New(filepath.Base(os.Args[0]))
}
