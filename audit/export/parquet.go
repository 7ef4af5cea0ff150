package export

import (
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/robotsproxy/robotsproxy/audit"
	"github.com/robotsproxy/robotsproxy/internal/safetext"
)

// rowsPerGroup bounds the memory of a parquetWriter, which holds a group of rows before it writes them.
const rowsPerGroup = 50_000

// parquetWriter writes rows of the schema parquetSchema.
type parquetWriter struct {
	out    *parquet.GenericWriter[any]
	values []any
	row    [1]parquet.Row
}

func newParquetWriter(w io.Writer) *parquetWriter {
	return &parquetWriter{out: parquet.NewGenericWriter[any](
		w, parquetSchema, parquet.MaxRowsPerRowGroup(rowsPerGroup), parquet.Compression(&parquet.Zstd),
		parquet.CreatedBy("robotsproxy", "", ""),
	)}
}

// parquetSchema has a column for each of audit.Columns. Fields that a record may omit are optional.
var parquetSchema = parquet.NewSchema("record", parquetColumns())

// The columns whose values rarely repeat, so that a dictionary of them would not be shorter.
var varied = map[string]bool{"id": true, "path": true, "query": true, "error": true}

// parquetColumns is a struct with the fields of audit.Record in the types of Record.Values.
func parquetColumns() parquet.Node {
	var fields []reflect.StructField
	t := reflect.TypeFor[audit.Record]()
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		tag := name
		if strings.HasPrefix(options, "omit") {
			tag += ",optional"
		}
		column, kind := columnType(f.Type)
		if kind == "dict" && varied[name] {
			kind = ""
		}
		if kind != "" {
			tag += "," + kind
		}
		fields = append(fields, reflect.StructField{Name: f.Name, Type: column, Tag: reflect.StructTag(`parquet:"` + tag + `"`)})
	}
	return parquet.SchemaOf(reflect.New(reflect.StructOf(fields)).Interface())
}

// columnType returns the type of the column for a field, and its option in a tag of package parquet.
func columnType(t reflect.Type) (column reflect.Type, option string) {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return t, "timestamp(microsecond)"
	case t == reflect.TypeFor[audit.Millis]():
		return reflect.TypeFor[float64](), ""
	case t == reflect.TypeFor[audit.ID](), t.Kind() == reflect.String:
		return reflect.TypeFor[string](), "dict"
	}
	return reflect.TypeFor[int64](), ""
}

// Add implements writer.
func (p *parquetWriter) Add(r *audit.Record) error {
	p.values = r.Values(p.values[:0])
	row := p.row[0][:0]
	for i, v := range p.values {
		row = append(row, cell(v, i))
	}
	p.row[0] = row
	_, err := p.out.WriteRows(p.row[:])
	return err
}

// optional says for each column whether it may have no value.
var optional = func() (flags []bool) {
	for _, f := range parquetSchema.Fields() {
		flags = append(flags, f.Optional())
	}
	return flags
}()

// cell returns the value v of Record.Values for a column. Zero is no value if the column may have none.
func cell(v any, column int) parquet.Value {
	level := 0
	if optional[column] {
		if reflect.ValueOf(v).IsZero() {
			return parquet.NullValue().Level(0, 0, column)
		}
		level = 1
	}
	return plainValue(v).Level(0, level, column)
}

func plainValue(v any) parquet.Value {
	switch v := v.(type) {
	case int64:
		return parquet.Int64Value(v)
	case time.Time:
		return parquet.Int64Value(v.UnixMicro())
	case time.Duration:
		return parquet.DoubleValue(float64(v.Microseconds()) / 1000)
	}
	return parquet.ByteArrayValue([]byte(safetext.Text(v.(string))))
}

// Close implements writer.
func (p *parquetWriter) Close() error { return p.out.Close() }
