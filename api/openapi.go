package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
)

// anyObject stands for an answer whose members are not described.
type anyObject struct{}

// openapi serves the document.
func (s *Server) openapi(*request) (any, error) { return json.RawMessage(s.document), nil }

// about is what a document says of itself.
type about struct {
	title, description, security string
}

var customersAbout = about{
	title: "Tandem",
	description: "Programmable voice: applications, phone numbers (DIDs), SIP trunks and calls.\n\n" +
		"Every failure has the shape {\"error\": {\"code\", \"message\"}}; branch on code. " +
		"Every POST takes an Idempotency-Key. Unknown fields and query parameters are refused.",
	security: "An application's API key.",
}

// The documents, each made once: they are of the routes alone, whatever a server is configured with.
var (
	customersDocument = sync.OnceValues(func() ([]byte, error) { return document(customersAbout, (&Server{}).routes()) })
	operatorsDocument = sync.OnceValues(func() ([]byte, error) { return document(operatorsAbout, (&Server{}).operatorRoutes()) })
)

// document makes the OpenAPI 3.1 document of the routes.
func document(about about, routes []route) ([]byte, error) {
	doc := &openapi3.T{
		OpenAPI: "3.1.0",
		Info: &openapi3.Info{
			Title:       about.title,
			Version:     "1",
			Description: about.description,
			License:     &openapi3.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Servers: openapi3.Servers{{URL: "/"}},
		Components: &openapi3.Components{
			Schemas: openapi3.Schemas{},
			SecuritySchemes: openapi3.SecuritySchemes{"bearer": &openapi3.SecuritySchemeRef{Value: &openapi3.SecurityScheme{
				Type: "http", Scheme: "bearer", Description: about.security,
			}}},
		},
		Security: openapi3.SecurityRequirements{{"bearer": []string{}}},
		Paths:    openapi3.NewPaths(),
	}
	w := documentWriter{doc: doc}
	if err := w.component("Error", reflect.TypeFor[errorBody]()); err != nil {
		return nil, err
	}
	for _, route := range routes {
		if err := w.add(route); err != nil {
			return nil, fmt.Errorf("%s %s: %w", route.method, route.path, err)
		}
	}
	encoded, err := json.Marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return encoded, nil
}

// documentWriter adds routes to a document.
type documentWriter struct{ doc *openapi3.T }

// openPath gives a route's path the form that OpenAPI wants.
func openPath(path string) string { return pathParam.ReplaceAllString(path, "{$1}") }

func (w documentWriter) add(route route) error {
	op := &openapi3.Operation{
		OperationID: route.id, Summary: route.summary, Description: route.details, Tags: []string{route.tag},
		Responses: &openapi3.Responses{},
	}
	if route.public {
		op.Security = &openapi3.SecurityRequirements{}
	}
	for _, name := range route.params() {
		op.AddParameter(openapi3.NewPathParameter(name).WithSchema(openapi3.NewStringSchema()))
	}
	for _, param := range route.query {
		op.AddParameter(openapi3.NewQueryParameter(param.name).WithDescription(param.doc).WithSchema(param.schema()))
	}
	if route.idempotent() {
		op.AddParameter(openapi3.NewHeaderParameter(headerIdempotencyKey).
			WithDescription("Makes the request safe to repeat for 24 hours: a repetition gets the first answer and changes nothing.").
			WithSchema(openapi3.NewStringSchema().WithMinLength(1).WithMaxLength(255).WithPattern(`^[!-~]+$`)))
	}
	if route.request != nil {
		ref, err := w.reference(reflect.TypeOf(route.request))
		if err != nil {
			return err
		}
		body := openapi3.NewRequestBody().WithContent(openapi3.NewContentWithJSONSchemaRef(ref)).WithRequired(!route.bodyOptional)
		op.RequestBody = &openapi3.RequestBodyRef{Value: body}
	}
	if err := w.responses(op, route); err != nil {
		return err
	}
	w.doc.AddOperation(openPath(route.path), route.method, op)
	return nil
}

func (p param) schema() *openapi3.Schema {
	var schema *openapi3.Schema
	switch p.kind {
	case "integer":
		schema = openapi3.NewIntegerSchema().WithMin(1).WithMax(maxLimit)
	case "time":
		schema = openapi3.NewAnyOfSchema(openapi3.NewDateTimeSchema(), openapi3.NewStringSchema().WithFormat("date"))
	default:
		schema = openapi3.NewStringSchema()
	}
	for _, value := range p.enum {
		schema.Enum = append(schema.Enum, value)
	}
	return schema
}

// responses adds the success and, for each status, the error codes that the route can answer with.
func (w documentWriter) responses(op *openapi3.Operation, route route) error {
	success := openapi3.NewResponse().WithDescription(http.StatusText(route.status))
	success.Headers = openapi3.Headers{headerRequestID: header("Identifies the request in support and logs.")}
	success.Headers[headerLimit] = header("How many requests may be made in a minute.")
	success.Headers[headerRemaining] = header("How many of them are left.")
	success.Headers[headerReset] = header("In how many seconds all of them are there again.")
	if route.idempotent() {
		success.Headers[headerReplayed] = header("true when the answer is that of an earlier request with the same Idempotency-Key.")
	}
	if route.response != nil {
		ref, err := w.reference(reflect.TypeOf(route.response))
		if err != nil {
			return err
		}
		success.Content = openapi3.NewContentWithJSONSchemaRef(ref)
		if route.csv {
			success.Content["text/csv"] = openapi3.NewMediaType().WithSchema(openapi3.NewStringSchema())
		}
	}
	op.AddResponse(route.status, success)
	if route.dry != nil {
		ref, err := w.reference(reflect.TypeOf(route.dry))
		if err != nil {
			return err
		}
		dry := openapi3.NewResponse().WithDescription("Nothing was done: dry_run").WithContent(openapi3.NewContentWithJSONSchemaRef(ref))
		dry.Headers = success.Headers
		op.AddResponse(http.StatusOK, dry)
	}

	byStatus := map[int][]any{}
	codes := route.implied()
	slices.Sort(codes)
	for _, code := range slices.Compact(codes) {
		status, known := errorStatus[code]
		if !known {
			return fmt.Errorf("error code %q has no status", code)
		}
		byStatus[status] = append(byStatus[status], code)
	}
	for status, codes := range byStatus {
		// The shape is everywhere the same; what differs is which codes may come.
		which := openapi3.NewObjectSchema().WithProperty("error", openapi3.NewObjectSchema().
			WithProperty("code", openapi3.NewStringSchema().WithEnum(codes...)))
		schema := &openapi3.Schema{AllOf: openapi3.SchemaRefs{w.ref("Error"), openapi3.NewSchemaRef("", which)}}
		names := make([]string, len(codes))
		for i, code := range codes {
			names[i] = fmt.Sprint(code)
		}
		op.AddResponse(status, openapi3.NewResponse().WithDescription(strings.Join(names, ", ")).
			WithContent(openapi3.NewContentWithJSONSchema(schema)))
	}
	// kin-openapi starts with an empty default response, which says that anything may happen.
	op.Responses.Delete("default")
	return nil
}

func header(doc string) *openapi3.HeaderRef {
	return &openapi3.HeaderRef{Value: &openapi3.Header{Parameter: openapi3.Parameter{
		Description: doc, Schema: openapi3.NewSchemaRef("", openapi3.NewStringSchema()),
	}}}
}

func (w documentWriter) ref(name string) *openapi3.SchemaRef {
	return openapi3.NewSchemaRef("#/components/schemas/"+name, w.doc.Components.Schemas[name].Value)
}

// reference returns a reference to the schema of a request or response type, which it adds to the components. The list
// envelope is written here: its element is a component, its type is generic.
func (w documentWriter) reference(t reflect.Type) (*openapi3.SchemaRef, error) {
	switch t {
	case reflect.TypeFor[anyObject](), reflect.TypeFor[simulationScript]():
		return openapi3.NewSchemaRef("", openapi3.NewObjectSchema()), nil
	case reflect.TypeFor[eventObject]():
		name := componentName(t)
		if err := w.component(name, reflect.TypeFor[eventShape]()); err != nil {
			return nil, err
		}
		return w.ref(name), nil
	case reflect.TypeFor[anyValue]():
		return openapi3.NewSchemaRef("", &openapi3.Schema{}), nil
	}
	data, isList := t.FieldByName("Data")
	if !isList {
		name := componentName(t)
		if err := w.component(name, t); err != nil {
			return nil, err
		}
		return w.ref(name), nil
	}
	item, err := w.reference(data.Type.Elem())
	if err != nil {
		return nil, err
	}
	items := openapi3.NewArraySchema()
	items.Items = item
	cursor := openapi3.NewStringSchema()
	cursor.Type = &openapi3.Types{openapi3.TypeString, openapi3.TypeNull}
	cursor.Description = "Give it as cursor to get the next page; null where there is none."
	envelope := openapi3.NewObjectSchema().
		WithProperty("data", items).
		WithProperty("count", &openapi3.Schema{Type: &openapi3.Types{openapi3.TypeInteger}, Description: "Items in data."}).
		WithProperty("has_more", openapi3.NewBoolSchema()).
		WithProperty("next_cursor", cursor)
	envelope.Required = []string{"data", "count", "has_more", "next_cursor"}
	name := componentName(data.Type.Elem()) + "List"
	w.doc.Components.Schemas[name] = openapi3.NewSchemaRef("", envelope)
	return w.ref(name), nil
}

// componentName makes applicationObject Application and trunkCreate TrunkCreate.
func componentName(t reflect.Type) string {
	name := strings.TrimSuffix(t.Name(), "Object")
	return strings.ToUpper(name[:1]) + name[1:]
}

func (w documentWriter) component(name string, t reflect.Type) error {
	if _, known := w.doc.Components.Schemas[name]; known {
		return nil
	}
	schema, err := schemaOf(t)
	if err != nil {
		return fmt.Errorf("schema of %s: %w", name, err)
	}
	w.doc.Components.Schemas[name] = openapi3.NewSchemaRef("", schema)
	return nil
}

// number reads a number of a struct tag; the tags are ours, and a wrong one fails every test.
func number(tag reflect.StructTag, name string) (*float64, error) {
	raw, ok := tag.Lookup(name)
	if !ok {
		return nil, nil
	}
	value, err := strconv.ParseFloat(raw, 64)
	if err != nil {
		return nil, fmt.Errorf("tag %s: %w", name, err)
	}
	return &value, nil
}
