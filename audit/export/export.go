// Package export writes records in the formats of other programs, for the storage and the tools of those who must keep
// or study them.
//
//	err := export.File("records.parquet", false, func(w io.Writer) error {
//		_, err := export.Write(w, export.Parquet, store.Records(ctx, audit.Filter{}))
//		return err
//	})
//
// All formats but Squid have all fields of a record, under the names of audit.Columns. All are written as the records
// are read, in memory that does not grow with their number.
package export

import (
	"bufio"
	"fmt"
	"io"
	"iter"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/auditview"
)

// Format is a format of records.
type Format string

// The formats.
const (
	CSV     Format = "csv"     // RFC 4180 with a header; no cell is a formula for a spreadsheet
	JSONL   Format = "jsonl"   // a JSON object on each line
	Parquet Format = "parquet" // Apache Parquet; times in microseconds UTC, durations in milliseconds
	Squid   Format = "squid"   // the native format of Squid's access.log, for its report programs
)

// Formats are all formats.
var Formats = []Format{CSV, JSONL, Parquet, Squid}

// Records are records, as audit.Reader returns them.
type Records = iter.Seq2[*audit.Record, error]

// Write writes records to w, and returns their number. It ends at the first error.
func Write(w io.Writer, f Format, records Records) (n int64, err error) {
	out, err := newWriter(w, f)
	if err != nil {
		return 0, err
	}
	for r, err := range records {
		if err != nil {
			return n, err
		}
		if err := out.Add(r); err != nil {
			return n, err
		}
		n++
	}
	return n, out.Close()
}

// writer writes records in a format. Close writes what is left.
type writer interface {
	Add(r *audit.Record) error
	Close() error
}

func newWriter(w io.Writer, f Format) (writer, error) {
	switch f {
	case CSV, JSONL:
		return auditview.NewRecords(w, auditview.Options{Format: auditview.Format(f)}), nil
	case Parquet:
		return newParquetWriter(w), nil
	case Squid:
		return &squidWriter{out: bufio.NewWriter(w)}, nil
	}
	return nil, fmt.Errorf("export: %q is not one of the formats %v", f, Formats)
}
