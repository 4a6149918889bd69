package store

import "context"

// ApplicationID and MaxBatch are for tests that craft files.
const (
	ApplicationID = applicationID
	MaxBatch      = maxBatch
)

// SchemaVersion is too.
var SchemaVersion = schemaVersion()

// Steps are the released texts of the schema's versions.
func Steps() []string { return steps }

// Guards gives the text of every table, index and trigger that this program
// makes for a version.
func Guards(ctx context.Context, version int) ([]string, error) {
	g, err := guardsOf(ctx, version)
	return g.schema, err
}

// ConnectionSettings reads a setting back on the writer's connection and on as
// many readers as there can be.
func (db *DB) ConnectionSettings(ctx context.Context, pragma string) (writer string, fromReaders []string, err error) {
	db.mu.RLock()
	defer db.mu.RUnlock()
	err = db.files.conn.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&writer)
	for range readers {
		conn, connErr := db.files.reader.Conn(ctx) // held, so that the next is another
		if connErr != nil {
			return writer, fromReaders, connErr
		}
		defer func() { _ = conn.Close() }()
		var value string
		if err := conn.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(&value); err != nil {
			return writer, fromReaders, err
		}
		fromReaders = append(fromReaders, value)
	}
	return writer, fromReaders, err
}

// Queued is the number of calls that wait for the writer.
func (db *DB) Queued() int { return len(db.jobs) }
