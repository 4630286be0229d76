// Compiles a shader stage with Microsoft's d3dcompiler_47.dll, warnings as errors:
//
//   fxc.exe FILE ENTRY PROFILE [NAME=VALUE…]
//
// Prints the number of instructions, or the compiler's messages and exits with 1. Accepts several
// compilations separated by "--", since starting wine takes longer than compiling.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

typedef struct Blob Blob;
typedef struct {
	HRESULT(WINAPI *query)(Blob *, const GUID *, void **);
	ULONG(WINAPI *ref)(Blob *);
	ULONG(WINAPI *release)(Blob *);
	void *(WINAPI *data)(Blob *);
	SIZE_T(WINAPI *size)(Blob *);
} BlobTable;
struct Blob {
	const BlobTable *table;
};
typedef struct {
	const char *name, *value;
} Macro;
typedef HRESULT(WINAPI *Compile)(const void *source, SIZE_T size, const char *name, const Macro *macros, void *include,
	const char *entry, const char *profile, UINT flags, UINT effect, Blob **code, Blob **messages);
typedef HRESULT(WINAPI *Disassemble)(const void *code, SIZE_T size, UINT flags, const char *comments, Blob **text);

// D3D_COMPILE_STANDARD_FILE_INCLUDE: includes are relative to the including file or to FILE.
#define STANDARD_INCLUDE ((void *)1)

enum { STRICT_SYNTAX = 1 << 11, WARNINGS_ARE_ERRORS = 1 << 18, OPTIMIZE_MOST = 1 << 15, MOST_MACROS = 32 };

static char *read_file(const char *path, SIZE_T *size) {
	FILE *f = fopen(path, "rb");
	if (!f) return NULL;
	fseek(f, 0, SEEK_END);
	long n = ftell(f);
	rewind(f);
	char *b = malloc(n > 0 ? (size_t)n : 1);
	*size = b ? fread(b, 1, (size_t)n, f) : 0;
	fclose(f);
	return b;
}

static int compile(Compile compile, Disassemble disassemble, int n, char **args) {
	if (n < 3 || n - 3 >= MOST_MACROS) {
		fprintf(stderr, "fxc: FILE ENTRY PROFILE [NAME=VALUE...]\n");
		return 1;
	}
	Macro macros[MOST_MACROS + 1] = {{0}};
	for (int i = 3; i < n; i++) {
		char *equals = strchr(args[i], '=');
		if (equals) *equals = 0;
		macros[i - 3] = (Macro){args[i], equals ? equals + 1 : "1"};
	}
	SIZE_T size;
	char *source = read_file(args[0], &size);
	if (!source) {
		fprintf(stderr, "fxc: cannot read %s\n", args[0]);
		return 1;
	}
	Blob *code = NULL, *messages = NULL, *text = NULL;
	HRESULT result = compile(source, size, args[0], macros, STANDARD_INCLUDE, args[1], args[2],
		STRICT_SYNTAX | WARNINGS_ARE_ERRORS | OPTIMIZE_MOST, 0, &code, &messages);
	free(source);
	if (messages) fprintf(stderr, "%s", (char *)messages->table->data(messages));
	if (result < 0 || !code) {
		fprintf(stderr, "fxc: %s %s %s: 0x%08lx\n", args[0], args[1], args[2], (unsigned long)result);
		return 1;
	}
	if (disassemble(code->table->data(code), code->table->size(code), 0, NULL, &text) >= 0) {
		const char *count = strstr(text->table->data(text), "// Approximately ");
		printf("%s %s: %d instructions, %lu bytes\n", args[1], args[2], count ? atoi(count + 17) : -1,
		(unsigned long)code->table->size(code));
	}
	return 0;
}

int main(int argc, char **argv) {
	HMODULE library = LoadLibraryA("d3dcompiler_47.dll");
	if (!library) {
		fprintf(stderr, "fxc: d3dcompiler_47.dll not found next to fxc.exe\n");
		return 1;
	}
	Compile c = (Compile)(void *)GetProcAddress(library, "D3DCompile");
	Disassemble d = (Disassemble)(void *)GetProcAddress(library, "D3DDisassemble");
	int failed = 0;
	for (int from = 1, to; from < argc; from = to + 1) {
		for (to = from; to < argc && strcmp(argv[to], "--"); to++) {
		}
		failed |= compile(c, d, to - from, argv + from);
	}
	return failed;
}
