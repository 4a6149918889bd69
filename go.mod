module github.com/oduflow/oduflow-salt

go 1.25.0
