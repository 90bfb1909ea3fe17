"""Packs a folder as a VS Code extension: a .vsix is a zip file with two descriptions beside the extension's files."""

import json
import zipfile
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

__all__ = ["pack"]

CONTENT_TYPES = """\
<?xml version="1.0" encoding="utf-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
  <Default Extension=".json" ContentType="application/json"/>
  <Default Extension=".js" ContentType="application/javascript"/>
  <Default Extension=".vsixmanifest" ContentType="text/xml"/>
</Types>
"""
MANIFEST = """\
<?xml version="1.0" encoding="utf-8"?>
<PackageManifest Version="2.0.0" xmlns="http://schemas.microsoft.com/developer/vsx-schema/2011">
  <Metadata>
    <Identity Language="en-US" Id={name} Version={version} Publisher={publisher}/>
    <DisplayName>{title}</DisplayName>
    <Description xml:space="preserve">{description}</Description>
    <Properties>
      <Property Id="Microsoft.VisualStudio.Code.Engine" Value={engine}/>
      <Property Id="Microsoft.VisualStudio.Code.ExtensionKind" Value={kind}/>
    </Properties>
  </Metadata>
  <Installation><InstallationTarget Id="Microsoft.VisualStudio.Code"/></Installation>
  <Dependencies/>
  <Assets>
    <Asset Type="Microsoft.VisualStudio.Code.Manifest" Path="extension/package.json" Addressable="true"/>
  </Assets>
</PackageManifest>
"""


def pack(folder: Path, to: Path) -> Path:
    """Write the extension in `folder` to `to`/NAME.vsix, and return that path."""
    package = json.loads((folder / "package.json").read_text())
    path = to / f"{package['name']}.vsix"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("extension.vsixmanifest", _manifest(package))
        archive.writestr("[Content_Types].xml", CONTENT_TYPES)
        for file in sorted(each for each in folder.rglob("*") if each.is_file()):
            archive.write(file, f"extension/{file.relative_to(folder).as_posix()}")
    return path


def _manifest(package: dict[str, str]) -> str:
    return MANIFEST.format(
        name=quoteattr(package["name"]),
        version=quoteattr(package["version"]),
        publisher=quoteattr(package["publisher"]),
        title=escape(package["displayName"]),
        description=escape(package["description"]),
        engine=quoteattr(package["engines"]["vscode"]),  # type: ignore[index]
        kind=quoteattr(",".join(package["extensionKind"])),
    )
