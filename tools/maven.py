"""Jars from Maven Central, by the ordinary client."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>kafkapy</groupId><artifactId>tools</artifactId><version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """<dependency>
  <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}
</dependency>"""


class ToolsMissing(Exception):
    """Something that must be installed first; the text says what."""


def require_java() -> None:
    """Raise ToolsMissing where no Java 17 or newer answers."""
    try:
        response = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
        major = int(response.split('"')[1].split(".")[0])
    except (OSError, subprocess.CalledProcessError, IndexError, ValueError):
        raise ToolsMissing(
            "Java 17 is needed and no `java` answers: install a JRE 17 (Debian: openjdk-17-jre-headless)"
        ) from None
    if major < 17:
        raise ToolsMissing(f"Java 17 is needed, `java -version` says {major}")


def maven_copy(
    dependencies: Sequence[tuple[str, str, str] | tuple[str, str, str, str]], target: Path, *, transitive: bool = True
) -> None:
    """Copy the jars of (group, artifact, version), and what they need at run time, into `target`: all or nothing.

    A fourth word is the classifier.
    """
    require_java()
    if shutil.which("mvn") is None:
        raise ToolsMissing("Maven is needed to fetch Java packages and no `mvn` is found (Debian: maven)")
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    pom = partial / "pom.xml"
    pom.write_text(POM.format(dependencies="".join(map(_dependency, dependencies))))
    options = ["-DincludeScope=runtime", f"-DexcludeTransitive={str(not transitive).lower()}"]
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", *options]
    subprocess.run([*command, f"-DoutputDirectory={partial}"], check=True, stdin=subprocess.DEVNULL)
    pom.unlink()
    assert any(partial.glob("*.jar")), f"Maven copied none of {dependencies}"
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


def _dependency(names: Sequence[str]) -> str:
    """Return the XML of a dependency. An empty classifier is another one than none: Maven copies nothing then."""
    classifier = "".join(f"<classifier>{each}</classifier>" for each in names[3:] if each)
    return DEPENDENCY.format(*names[:3], classifier)
