package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tandem/models/modelstest"
)

// TestRouteParity compares what fiber serves with what the document says, both ways.
func TestRouteParity(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	served := b.servesWhatIsDocumented("/v1/") // what is not below /v1 is for nodes, not for customers
	require.Len(t, served, len(b.server.routes()))
}

// servesWhatIsDocumented compares what fiber serves below a path with what the bench's document says, and returns it.
func (b *bench) servesWhatIsDocumented(below string) []string {
	b.t.Helper()
	var served, documented []string
	for _, route := range b.server.App().GetRoutes(true) {
		if route.Method != http.MethodHead && strings.HasPrefix(route.Path, below) {
			served = append(served, route.Method+" "+openPath(route.Path))
		}
	}
	for path, item := range b.doc.Paths.Map() {
		for method := range item.Operations() {
			documented = append(documented, method+" "+path)
		}
	}
	slices.Sort(served)
	slices.Sort(documented)
	require.Equal(b.t, served, documented)
	return served
}

// TestContractIsThere holds the table to the contract's own: section 4's endpoints with their error codes, section 2's fields.
func TestContractIsThere(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	for endpoint, codes := range map[string][]string{
		"POST /v1/trunks":                {"invalid_request", "unauthorized", "gateway_name_exists", "inbound_ip_exists"},
		"GET /v1/trunks":                 {"unauthorized"},
		"POST /v1/applications":          {"invalid_json", "invalid_request", "unauthorized"},
		"GET /v1/applications":           {"unauthorized"},
		"GET /v1/dids":                   {"unauthorized"},
		"GET /v1/dids/:id":               {"not_found"},
		"GET /v1/dids/by-number/:number": {"not_found"},
		"POST /v1/calls":                 {"insufficient_balance", "no_active_trunk"},
	} {
		method, path, _ := strings.Cut(endpoint, " ")
		i := slices.IndexFunc(b.server.routes(), func(r route) bool { return r.method == method && r.path == path })
		require.GreaterOrEqual(t, i, 0, endpoint)
		for _, code := range codes {
			require.Contains(t, b.server.routes()[i].implied(), code, endpoint)
		}
	}
	for code, status := range map[string]int{
		"invalid_request": 400, "invalid_json": 400, "unauthorized": 401, "gateway_name_exists": 409, "inbound_ip_exists": 409,
		"not_found": 404, "no_active_trunk": 409, "insufficient_balance": 402,
	} {
		require.Equal(t, status, errorStatus[code], code)
	}
	for schema, fields := range map[string]string{
		"TrunkCreate":       "name proxy username password realm from_domain is_active gateway_name",
		"Trunk":             "id customer_id name proxy username is_active gateway_name direction created_at updated_at registration_status",
		"DID":               "id customer_id application_id number_e164 provider status route_mode created_at updated_at",
		"ApplicationCreate": "name answer_url webhook_url webhook_secret",
		"Application":       "id customer_id name answer_url webhook_url created_at",
		"CallCreate":        "application_id from to record metadata",
		"Call":              "id status direction from to application_id customer_id created_at",
		"TrunkList":         "data count",
		"ApplicationList":   "data count",
	} {
		for _, field := range strings.Fields(fields) {
			require.Contains(t, b.doc.Components.Schemas[b.schemaName(schema)].Value.Properties, field, schema)
		}
	}
	created := b.doc.Components.Schemas["ApplicationCreated"].Value
	require.Contains(t, created.Properties, "api_key")
	for _, secret := range []string{"password", "realm", "from_domain"} {
		require.NotContains(t, b.doc.Components.Schemas["Trunk"].Value.Properties, secret)
	}
	for _, name := range []string{"Application", "ApplicationCreated"} {
		require.NotContains(t, b.doc.Components.Schemas[name].Value.Properties, "webhook_secret")
	}
}

// schemaName finds a component whatever the case of its first letters.
func (b *bench) schemaName(name string) string {
	b.t.Helper()
	for known := range b.doc.Components.Schemas {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	b.t.Fatalf("no schema %s", name)
	return ""
}

// TestEveryCodeIsUsed: a code in the table that nothing can answer with is a leftover, and so is an undocumented one.
func TestEveryCodeIsUsed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, route := range slices.Concat((&Server{}).routes(), (&Server{}).operatorRoutes()) {
		for _, code := range route.implied() {
			used[code] = true
		}
	}
	for _, reply := range fiberErrors {
		used[reply.Code] = true
	}
	document, err := os.ReadFile("../docs/api.md")
	require.NoError(t, err)
	for code, status := range errorStatus {
		require.True(t, used[code], code)
		require.Contains(t, string(document), fmt.Sprintf("| `%s` | %d |", code, status))
	}
	for _, route := range (&Server{}).routes() {
		require.Contains(t, string(document), "`"+route.method+" "+route.path+"`")
	}
}

func TestDocumentIsServed(t *testing.T) {
	t.Parallel()
	b := newBench(t, modelstest.Open(t), Config{})
	none := ""
	got := b.do(exchange{method: "GET", path: "/v1/openapi.json", key: &none}).is(200)
	require.Equal(t, "application/json", got.header.Get("Content-Type"))
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			RequestBody struct {
				Required bool
				Content  map[string]struct {
					Schema struct {
						Ref string `json:"$ref"`
					}
				}
			}
			Security *[]any
		}
		Components struct {
			Schemas map[string]struct {
				Required             []string
				AdditionalProperties any
				Properties           map[string]map[string]any
			}
		}
	}
	require.NoError(t, json.Unmarshal(got.body, &doc))
	require.Equal(t, "3.1.0", doc.OpenAPI)
	require.NotContains(t, string(got.body), `"nullable"`, "null is a type since 3.1")
	create := doc.Paths["/v1/applications"]["post"]
	require.True(t, create.RequestBody.Required)
	require.Equal(t, "#/components/schemas/ApplicationCreate", create.RequestBody.Content["application/json"].Schema.Ref)
	require.False(t, doc.Paths["/v1/calls/{id}/cancel"]["post"].RequestBody.Required)
	require.Equal(t, []string{"name", "answer_url"}, doc.Components.Schemas["ApplicationCreate"].Required)
	require.Equal(t, false, doc.Components.Schemas["ApplicationCreate"].AdditionalProperties)
	require.Equal(t, []any{"string", "null"}, doc.Components.Schemas["TrunkCreate"].Properties["application_id"]["type"])
	require.Equal(t, "string", doc.Components.Schemas["TrunkCreate"].Properties["name"]["type"])
	for _, schema := range []string{"Application", "ApplicationCreate", "ApplicationUpdate"} {
		require.Equal(t, map[string]any{"type": "string"}, doc.Components.Schemas[schema].Properties["events"]["items"], schema)
		require.Equal(t, []any{"array", "null"}, doc.Components.Schemas[schema].Properties["events"]["type"], schema)
	}
	require.NotNil(t, doc.Paths["/v1/openapi.json"]["get"].Security)
	require.Empty(t, *doc.Paths["/v1/openapi.json"]["get"].Security)
	require.Nil(t, doc.Paths["/v1/me"]["get"].Security)
}

// TestDocumentIsDeterministic: two starts serve the same bytes.
func TestDocumentIsDeterministic(t *testing.T) {
	t.Parallel()
	first, err := document(customersAbout, (&Server{}).routes())
	require.NoError(t, err)
	for range 5 {
		again, err := document(customersAbout, (&Server{}).routes())
		require.NoError(t, err)
		require.Equal(t, string(first), string(again))
	}
}
